/*
 * api_check.c -- compares every row of runtime/cuda/api.def, and the structs
 * and numbers of runtime/cuda/cuda.h, with the toolkit's own headers.  It is
 * compiled where they are and never run:
 *
 *     cc -fsyntax-only -I. -I/usr/local/cuda/include tests/device/api_check.c
 *
 * Enumerations of the headers are compatible with our unsigned, since none has
 * a negative member.
 */
#include <stddef.h>
#include <stdint.h>

#define CHECK(theirs, parameters)                                              \
  _Static_assert(                                                              \
      __builtin_types_compatible_p(__typeof__(&theirs), CuEnum(*) parameters), \
      #theirs " differs from its row in api.def");

/* The names of api.def are the headers' types here. */
#include <cuda.h>
typedef unsigned CuEnum;
typedef CUcontext CuContext;
typedef CUstream CuStream;
typedef CUevent CuEvent;
typedef CUmodule CuModule;
typedef CUfunction CuFunction;
#define CU(name, parameters) CHECK(name, parameters)
/* The header maps names without a version to these. */
#undef cuDevicePrimaryCtxRelease
#undef cuMemGetInfo
#undef cuMemAlloc
#undef cuMemFree
#undef cuMemcpyHtoDAsync
#undef cuMemcpyDtoHAsync
#undef cuMemcpyDtoDAsync
#undef cuStreamDestroy
#undef cuEventDestroy

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
typedef cublasLtHandle_t LtHandle;
typedef cublasLtMatmulDesc_t LtDesc;
typedef cublasLtMatrixLayout_t LtLayout;
typedef cublasLtMatmulPreference_t LtPreference;
typedef cublasLtMatmulHeuristicResult_t LtHeuristic;
typedef cublasLtMatmulAlgo_t LtAlgorithm;
#define LT(name, parameters) CHECK(cublasLt##name, parameters)
#endif

#if __has_include(<nccl.h>)
#include <nccl.h>
typedef ncclUniqueId NcclId;
typedef ncclComm_t NcclComm;
typedef ncclConfig_t NcclConfig;
#define NCCL(name, parameters) CHECK(nccl##name, parameters)
#endif

#include "runtime/cuda/api.def"

/* Our own structs and numbers, under other names. */
#define CuContext    OurContext
#define CuStream     OurStream
#define CuEvent      OurEvent
#define CuModule     OurModule
#define CuFunction   OurFunction
#define CuEnum       OurEnum
#define LtHandle     OurHandle
#define LtDesc       OurDesc
#define LtLayout     OurLayout
#define LtPreference OurPreference
#define LtHeuristic  OurHeuristic
#define LtAlgorithm  OurAlgorithm
#define NcclComm     OurComm
#define NcclId       OurId
#define NcclConfig   OurConfig
#include "runtime/cuda/cuda.h"

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(CU_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CU_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CU_MAX_DYNAMIC_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(CU_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(CU_NO_TIMING, CU_EVENT_DISABLE_TIMING);

#if __has_include(<cublasLt.h>)
#define LT_DTYPE(name, value) SAME(value, CUDA_##name);
#include "runtime/cuda/api.def"
SAME(LT_COMPUTE_F32, CUBLAS_COMPUTE_32F);
SAME(LT_COMPUTE_F64, CUBLAS_COMPUTE_64F);
SAME(LT_TRANSPOSE_A, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(LT_TRANSPOSE_B, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(LT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
SAME(LT_BATCH_STRIDE, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME(LT_MAX_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(LT_REDUCTION_SCHEMES, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(sizeof(OurAlgorithm), sizeof(cublasLtMatmulAlgo_t));
SAME(sizeof(OurHeuristic), sizeof(cublasLtMatmulHeuristicResult_t));
SAME(offsetof(OurHeuristic, state),
     offsetof(cublasLtMatmulHeuristicResult_t, state));
SAME(CUBLAS_OP_T, 1);
#endif

#if __has_include(<nccl.h>)
SAME(NCCL_IN_PROGRESS, ncclInProgress);
#define NCCL_DTYPE(name, value)  SAME(value, nccl##name);
#define NCCL_REDUCE(name, value) SAME(value, nccl##name);
#include "runtime/cuda/api.def"
SAME(sizeof(OurId), sizeof(ncclUniqueId));
SAME(offsetof(OurConfig, blocking), offsetof(ncclConfig_t, blocking));
SAME(offsetof(OurConfig, net_name), offsetof(ncclConfig_t, netName));
SAME(offsetof(OurConfig, split_share), offsetof(ncclConfig_t, splitShare));
#endif

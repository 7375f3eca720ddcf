/*
 * images.c -- reads the arguments of `images`, the source of pictures.
 */
#include "frontend/elaborate/eval.h"
#include "frontend/elaborate/match.h"
#include "frontend/blocks/blocks.h"

#include <string.h>

enum {
  IMAGES_resize = 2,
  IMAGES_crop,
  IMAGES_pad,
  IMAGES_flip,
  IMAGES_mean,
  IMAGES_std
};

static bool images_take_resize(BuiltinCall *call, DataField *out) {
  ExprValue val = call->args[IMAGES_resize];
  if (val.kind == EXPR_VALUE_none) return true;
  if (val.kind != EXPR_VALUE_list)
    return arg_int(call, IMAGES_resize, 1, &out->resize_rows);
  int64_t sizes[2];
  if (!arg_ints(call, IMAGES_resize, 2, 1, sizes)) return false;
  out->resize_rows = sizes[0];
  out->resize_columns = sizes[1];
  return true;
}

static bool images_take_crop(BuiltinCall *call, DataField *out) {
  static const char *const words[] = {"", "center", "random", "scaled"};
  ExprValue val = call->args[IMAGES_crop];
  if (val.kind != EXPR_VALUE_none) {
    for (int i = 1; i < ARRAY_LENGTH(words); i++)
      if (val.kind == EXPR_VALUE_string && strcmp(val.string, words[i]) == 0)
        out->crop = i;
    if (out->crop == CROP_none) {
      arg_wrong(call, IMAGES_crop, "\"center\", \"random\" or \"scaled\"");
      return false;
    }
  }
  if (!arg_int(call, IMAGES_pad, 0, &out->pad)) return false;
  if (out->pad == 0 || out->crop == CROP_random) return true;
  arg_wrong(call, IMAGES_pad, "0 unless crop is \"random\"");
  return false;
}

/* A number for all channels, or a list of one for each. */
static bool images_take_channels(BuiltinCall *call, int at, int64_t channels,
                                 double least, double init, double *out) {
  ExprValue val = call->args[at];
  bool is_list = val.kind == EXPR_VALUE_list;
  bool is_good = !is_list || val.list->n == channels;
  for (int c = 0; c < 3; c++) out[c] = init;
  if (val.kind == EXPR_VALUE_none) return true;
  for (int c = 0; c < channels && is_good; c++) {
    ExprValue item = is_list ? val.list->items[c] : val;
    is_good = expr_value_is_number(item);
    if (is_good) out[c] = expr_value_to_double(item);
    is_good = is_good && (at == IMAGES_mean || out[c] > least);
  }
  if (!is_good)
    arg_wrong(call, at,
              at == IMAGES_mean
                  ? "a number, or a list of one for each channel"
                  : "a number above 0, or a list of one for each channel");
  return is_good;
}

static bool images_check_type(Elab *e, const DataField *out, Span span) {
  const Type *type = out->type;
  int64_t channels = type->rank == 4 ? type->dims[1].size : 0;
  if (dtype_class(type->dtype) == CLASS_FLOAT &&
      (channels == 1 || channels == 3))
    return true;
  diag(e->diags, DIAG_picture_type, span, out->path);
  return false;
}

/* Reports a size that no picture can have after resizing. */
static bool images_check_sizes(BuiltinCall *call, const DataField *out) {
  int64_t rows = out->type->dims[2].size, columns = out->type->dims[3].size;
  if (!out->resize_rows) return true;
  int64_t least = rows < columns ? rows : columns;
  bool is_exact = out->crop == CROP_none, is_good;
  if (!out->resize_columns)
    is_good = is_exact ? out->resize_rows == least
                       : out->resize_rows + 2 * out->pad >= least;
  else
    is_good = is_exact
                  ? out->resize_rows == rows && out->resize_columns == columns
                  : out->resize_rows + 2 * out->pad >= rows &&
                        out->resize_columns + 2 * out->pad >= columns;
  if (is_good) return true;
  arg_wrong(call, IMAGES_resize,
            is_exact ? "the rows and columns of the field where nothing is "
                       "cropped"
                     : "at least the rows and columns of the field");
  return false;
}

bool images_take(Elab *e, BuiltinCall *call, DataField *out) {
  if (!images_check_type(e, out, call->x->span)) return false;
  int64_t channels = out->type->dims[1].size;
  bool flips = false;
  if (!arg_bool(call, IMAGES_flip, &flips)) return false;
  out->flips = flips;
  return images_take_resize(call, out) && images_take_crop(call, out) &&
         images_check_sizes(call, out) &&
         images_take_channels(call, IMAGES_mean, channels, 0, 0, out->mean) &&
         images_take_channels(call, IMAGES_std, channels, 0, 1, out->std);
}

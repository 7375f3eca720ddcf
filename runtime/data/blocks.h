/*
 * blocks.h -- declares what the files of data.h share: the blocks of a program
 * with their readers, and a batch that is filled.
 */
#ifndef RUNTIME_DATA_BLOCKS_H
#define RUNTIME_DATA_BLOCKS_H

#include "runtime/data/data.h"
#include "runtime/data/pictures.h"

/* The part of a block that is trained on, or evaluated. */
typedef struct Part {
  const Reader *const *readers; /* of each field; NULL for next() */
  int64_t first, n;             /* in units: values of a stream, or records */
} Part;

typedef struct Block {
  const DnnData *data;
  uint64_t key;
  int64_t window;    /* values of a stream that a sample takes */
  int64_t lookahead; /* values after them that next() needs */
  Part train, eval;
} Block;

/* A batch that is in host memory before its step begins. */
typedef struct Ahead {
  int64_t t;            /* 0: none */
  Status status;        /* of reading it */
  unsigned char *bytes; /* NULL: none was read ahead yet */
} Ahead;

struct Data {
  Arena *arena;
  const DnnProgram *program;
  const DnnBundle *bundle; /* or NULL */
  InputSearch search;
  Block *blocks;
  int64_t resident_bytes;
  Reader **opened;
  int n_opened;
  int64_t eval_batch;
  double *row;          /* values of a sample */
  void *raw;            /* the same as read */
  unsigned char *batch; /* of an entry point */
  Ahead ahead;
  Threads threads; /* opened when the first sample is read */
  Codecs *codecs;  /* where there are pictures, with the first of them */
  Team *team;
  PictureReader *picture_readers; /* of each thread of the team */
  int n_picture_readers;
  struct PictureWork *work, *next_work; /* of this fill, of the next step */
};

typedef struct BatchFill {
  Data *data;
  Device *device;
  const DnnEntryPoint *entry;
  bool is_eval, is_random;
  int64_t t;     /* training: step */
  int64_t first; /* evaluation: sample */
  int64_t n;     /* samples; 0: a full batch */
  int64_t epoch; /* its steps in training, the samples of an evaluation */
  int64_t slot;  /* of tensors that have several */
} BatchFill;

/* ---- blocks.c ---- */

/* Returns the values of a sample. */
int64_t field_items(const DnnField *field);
/* Returns how many next() are between a field and the one that is read. */
int64_t field_next_depth(const DnnData *data, const DnnField *field);
const DnnField *field_root(const DnnData *data, const DnnField *field);
/* NULL: there is none. */
const DnnField *data_find_field(const Data *data, const char *path,
                                const Block **out_block);
bool data_has_eval_file(const DnnData *data);
int64_t batch_shard_bytes(const DnnTensor *tensor);
/* Returns the room of a shard in a batch; the next one is aligned. */
int64_t batch_slot_bytes(const DnnTensor *tensor);
int64_t batch_bytes(const DnnEntryPoint *entry);

/* ---- places.c ---- */

/* Returns where a sample begins: a record, or a value of a stream.  `steps`: of
 * an epoch, which ends with the longest block; `n`: its samples. */
int64_t block_train_place(const Block *block, int64_t t, int64_t i,
                          int64_t batch, int64_t steps);
int64_t block_eval_place(const Block *block, int64_t sample, int64_t batch,
                         bool is_random, int64_t n);

/* ---- batch_rows.c ---- */

int64_t batch_place(const BatchFill *fill, const Block *block, int64_t i);
/* Returns the place in the batch of row `i` of a rank, which has the rows from
 * `begin` on, or as many out of the parts of the batch. */
int64_t batch_sample(const DnnTensor *tensor, int64_t begin, int64_t rows,
                     int64_t i);
bool batch_can_store(DnnDtype dtype);
/* Copies this rank's shard of a row; returns the next place to fill. */
unsigned char *batch_store(const DnnTensor *tensor, int rank, int dim,
                           const double *row, unsigned char *to);

/* ---- batch_pictures.c ---- */

bool batch_is_picture(const Data *data, const DnnTensor *tensor);
bool batch_has_pictures(const Data *data, const DnnEntryPoint *entry);
/* Begins with the pictures of a batch, or finds those that were read beside the
 * step before. */
Status batch_begin_pictures(const BatchFill *fill, unsigned char *to);
/* Waits for them, and begins with those of the next step. */
Status batch_finish_pictures(const BatchFill *fill, unsigned char *to);

#endif

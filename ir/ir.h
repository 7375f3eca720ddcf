/*
 * ir.h -- declares the dataflow IR: types with named dims and placements, nodes
 * with several results and region bodies, graphs in topological order.
 *
 * A graph is built by appending and never edited: a pass reads one graph and
 * builds the next, so ids stay dense, inputs precede users, and no pass can
 * leave a half-changed graph.
 *
 * Text form (graph_print, graph_parse), one node a line.  Values are numbered
 * through, results of all nodes together; `#` begins a comment:
 *
 *     graph mlp mesh(data = 2, time = 1~) {
 *       %0 = input {index = 0} : f32[P:784, H1:512] param "w" decay
 *       %2 = dot %1, %0 {over = [P]} : f32[B:128@data, H1:512] "linear.dot"
 *       %7, %8 = fused %2, %5 : f32[B:128], f32[] @update {
 *         ...
 *       }
 *       output loss "loss" %9
 *     }
 */
#ifndef IR_IR_H
#define IR_IR_H

#include "ir/adjoint.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "ir/scan.h"
#include "ir/text/exprtext.h"
#include "ir/type.h"

#endif

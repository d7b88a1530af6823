/* An extension of the plugin ABI: which of its kernels a plugin takes for an op. A plugin asks for it by name through
 * bp_host.query_extension and does without where the core answers NULL. The core shows the names beside op, kind of
 * step and number of tokens, and decides nothing by them. SPDX-License-Identifier: MIT */
#ifndef BACKPLANE_KERNELS_H_
#define BACKPLANE_KERNELS_H_

#include "backplane_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BP_KERNELS_EXTENSION "backplane.kernels.1"

typedef struct bp_kernels_extension {
  uint64_t size;
  /* Called inside `run`, with its context, by the thread that the core called: the op's work is done by this kernel.
   * The text is printable, at most 63 bytes are shown, and it stays valid as long as the process lives. Of several in
   * one call the first counts. Quick enough for every op. */
  void (*took)(bp_context context, const char* kernel);
} bp_kernels_extension;

#ifdef __cplusplus
}
#endif

#endif /* BACKPLANE_KERNELS_H_ */

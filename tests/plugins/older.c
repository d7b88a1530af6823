/* As if built against a header whose tables ended earlier: after the required functions. */
#include "fake_plugin.h"

typedef struct older_device_table {
  uint64_t size;
  void* caps;
  void* supports;
  void* run;
} older_device_table;

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

bp_status backplane_plugin_v1(const bp_host* host, bp_context context, bp_tables* tables) {
  (void)context;
  bp_device_table all;
  fake_fill(host, tables, "older");
  memset(&all, 0x7f, sizeof(all)); /* what lies beyond the old size must not be taken over */
  all.size = tables->device->size;
  all.caps = fake_caps;
  all.supports = fake_supports;
  all.run = fake_run;
  memcpy(tables->device, &all, smaller(tables->device->size, sizeof(older_device_table)));
  return BP_OK;
}

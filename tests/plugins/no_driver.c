/* Loads, but finds no driver to count devices with. */
#include "fake_plugin.h"

static bp_status count(bp_context context, uint32_t* devices) {
  *devices = 3;
  return fake_host->fail(context, BP_UNAVAILABLE, "the driver is not installed");
}

bp_status backplane_plugin_v1(const bp_host* host, bp_context context, bp_tables* tables) {
  (void)context;
  fake_fill(host, tables, "no_driver");
  tables->driver->count = count;
  return BP_OK;
}

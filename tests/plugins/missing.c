/* Forgets two required functions. */
#include "fake_plugin.h"

bp_status backplane_plugin_v1(const bp_host* host, bp_context context, bp_tables* tables) {
  (void)context;
  fake_fill(host, tables, "missing");
  tables->device->run = NULL;
  tables->buffer->free = NULL;
  return BP_OK;
}

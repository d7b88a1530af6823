/* Writes all of its own table, however long the core's is. */
#include "fake_plugin.h"

bp_status backplane_plugin_v1(const bp_host* host, bp_context context, bp_tables* tables) {
  (void)context;
  fake_fill(host, tables, "overrun");
  memset((char*)tables->kv + tables->kv->size, 0, 8);
  return BP_OK;
}

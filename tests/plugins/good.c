/* A well-behaved plugin with two devices. */
#include "fake_plugin.h"

static bp_status count(bp_context context, uint32_t* devices) {
  (void)context;
  *devices = 2;
  return BP_OK;
}

static bp_status describe(bp_context context, uint32_t index, bp_device_info* info) {
  (void)context;
  strcpy(info->name, index == 0 ? "first" : "second.1");
  strcpy(info->description, "Line one\nline two");
  info->memory_total = 1000 + index;
  return BP_OK;
}

bp_status backplane_plugin_v1(const bp_host* host, bp_context context, bp_tables* tables) {
  (void)context;
  fake_fill(host, tables, "good");
  tables->driver->count = count;
  tables->driver->describe = describe;
  return BP_OK;
}

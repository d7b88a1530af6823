/* Six devices, of which the first and the last have names that can be used. */
#include "fake_plugin.h"

static bp_status count(bp_context context, uint32_t* devices) {
  (void)context;
  *devices = 6;
  return BP_OK;
}

static bp_status describe(bp_context context, uint32_t index, bp_device_info* info) {
  switch (index) {
    case 0:
    case 1:
      strcpy(info->name, "same");
      return BP_OK;
    case 2:
      strcpy(info->name, "two words");
      return BP_OK;
    case 3:
      memset(info->name, 'x', sizeof(info->name)); /* no NUL */
      return BP_OK;
    case 4:
      return fake_host->fail(context, BP_DEVICE_LOST, "it fell off the bus");
    default:
      strcpy(info->name, "last");
      memset(info->description, 'y', sizeof(info->description));
      return BP_OK;
  }
}

bp_status backplane_plugin_v1(const bp_host* host, bp_context context, bp_tables* tables) {
  (void)context;
  fake_fill(host, tables, "bad_names");
  tables->driver->count = count;
  tables->driver->describe = describe;
  return BP_OK;
}

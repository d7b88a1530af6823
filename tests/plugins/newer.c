/* Built against a later minor version: its tables are longer than the core's, and there is one the core has never heard
 * of. It follows the rule and writes min(table->size, its own size). */
#include "fake_plugin.h"

typedef struct newer_device_table {
  bp_device_table known;
  void (*later[5])(void);
} newer_device_table;

typedef struct newer_tables {
  bp_tables known;
  bp_device_table* later;
} newer_tables;

static void later(void) {}

bp_status backplane_plugin_v1(const bp_host* host, bp_context context, bp_tables* tables) {
  (void)context;
  fake_fill(host, tables, "newer");
  tables->driver->abi_minor = 7;
  newer_device_table own;
  memset(&own, 0, sizeof(own));
  own.known.size = tables->device->size;
  own.known.caps = fake_caps;
  own.known.supports = fake_supports;
  own.known.run = fake_run;
  for (int i = 0; i < 5; ++i) own.later[i] = later;
  memcpy(tables->device, &own, tables->device->size < sizeof(own) ? tables->device->size : sizeof(own));
  if (tables->size >= sizeof(newer_tables)) ((newer_tables*)tables)->later->run = fake_run;
  return BP_OK;
}

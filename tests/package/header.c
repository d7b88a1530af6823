/* The contract as a plugin in plain C sees it: nothing else is included. */
#include "backplane_plugin.h"

int main(void) {
  bp_tables tables = {.size = sizeof(bp_tables)};
  bp_plugin_query_fn query = NULL;
  return tables.driver == NULL && query == NULL && BP_ABI_MAJOR == 1 ? 0 : 1;
}

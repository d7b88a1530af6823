// The contract as C++.
#include "backplane_plugin.h"

int main() {
  bp_tables tables{};
  tables.size = sizeof(bp_tables);
  const bp_plugin_query_fn query = nullptr;
  return tables.driver == nullptr && query == nullptr && BP_ABI_MAJOR == 1 ? 0 : 1;
}

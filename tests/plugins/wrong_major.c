/* Built for a contract that doesn't exist yet. */
#include "backplane_plugin.h"

BP_EXPORT int backplane_plugin_v2(void);
int backplane_plugin_v2(void) { return 0; }

/* A shared library like any other. */
#include "backplane_plugin.h"

BP_EXPORT int answer(void);
int answer(void) { return 42; }

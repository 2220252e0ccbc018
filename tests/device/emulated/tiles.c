/* The registers of the emulated tiles. */
#include "amx_tiles.h"

_Thread_local emulated_tiles emulated;

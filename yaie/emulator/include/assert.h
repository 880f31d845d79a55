// The C library's assert, made the kernel's own. Like the library's it may be included again.
#include_next <assert.h>

#include "emulator/api.h"

#undef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(condition)                                                                     \
    ((condition) ? (void)0 : emulator_assert_failed(#condition, __FILE__, __LINE__))
#endif

// The C library's assert, replaced by one that reports the thread. It may be included repeatedly.
#include_next <assert.h>

#include "emulator/api.h"

#undef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(condition)                                                                     \
    ((condition) ? (void)0 : emulator_assert_failed(#condition, __FILE__, __LINE__))
#endif

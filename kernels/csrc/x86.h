// The CPU's own operations on x86-64, without GCC's warnings about its own header: that initialises a
// variable with itself where the value does not matter.
#pragma once
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

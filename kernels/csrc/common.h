// What every native file shares: the exported interface's rules and the instruction sets by number.
// Holds no kernel.
//
// Rules of this folder. Everything exported is `TS_API`, plain C types, and returns nothing or an
// int: faults are caught by the caller, in Python, before the call. No STL and no inline functions
// with external linkage: two files compiled for different CPUs would share one copy, and which is
// chance. So helpers are `static`, or in an unnamed namespace. No allocation in a call.
#pragma once
#include <stdint.h>

#define TS_API extern "C" __attribute__((visibility("default")))

// Raised with every change of an exported function or struct; kernels/cpu.py holds the same number.
#define TS_ABI 1

// Of one kind of CPU, each level includes those below it. What a file without a suffix, or one named
// _plain, is compiled for is the compiler's default: SSE2; NEON, which every AArch64 CPU has; or
// whatever else. kernels/cpu.py has the same numbers.
enum TsIsa {
    TS_PLAIN = 0,
    TS_AVX2 = 1,       // with FMA and F16C
    TS_AVX512 = 2,     // F, BW, DQ, VL
    TS_AMX = 3,        // tiles of bf16, with AVX512_BF16
    TS_NEON = 16,      // plain, on AArch64
    TS_NEONBF16 = 17,  // with BFDOT and BFMMLA
};

// kernels/cpu.py has the same numbers.
enum TsDtype { TS_FP32 = 0, TS_BF16 = 1, TS_FP16 = 2 };

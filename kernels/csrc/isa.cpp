// Which instruction set this machine, its kernel included, can run; and whose threads are used.
#include <omp.h>

#include "common.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

TS_API int ts_abi() { return TS_ABI; }

// torch's number where the library shares torch's libgomp, which is what it is for.
TS_API int ts_threads() { return omp_get_max_threads(); }

#if defined(__x86_64__)
// Tiles are off in Linux until a process asks for them: 8 KB more to save at each switch.
static int may_use_tiles() {
    const int request_permission = 0x1023, tile_data = 18;
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

static int cpu_has_tiles() {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    return (d >> 22 & 1) && (d >> 24 & 1);  // AMX-BF16, AMX-TILE
}

static int cpu_has_bf16() {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}

static int cpu_has_f16c() {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}
#endif

// The highest TsIsa. __builtin_cpu_supports also asks whether the OS saves the wide registers.
TS_API int ts_best_isa() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !cpu_has_f16c())
        return TS_PLAIN;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return TS_AVX2;
    if (!cpu_has_bf16() || !cpu_has_tiles() || !may_use_tiles()) return TS_AVX512;
    return TS_AMX;
#elif defined(__aarch64__)
#if defined(__linux__)
    const unsigned long bf16 = 1ul << 14;  // HWCAP2_BF16, which older headers do not name
    if (getauxval(AT_HWCAP2) & bf16) return TS_NEONBF16;
#endif
    return TS_NEON;
#else
    return TS_PLAIN;
#endif
}

// The output head by vectors, on any CPU.
#include "head_rows.h"

void head_plain(const TsHead &head) { head_of_dtype(head); }

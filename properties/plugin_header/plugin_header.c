/* SPDX-License-Identifier: Apache-2.0 */
/* The plug-in interface as strict C99. */
#ifdef ATTEST_AFTER_DLPACK
#include <dlpack/dlpack.h>
#endif
#include <attest/plugin.h>

const char* attest_plugin_info(void) { return "{\"abi\":1}"; }

int attest_plugin_run(const AttestCall* call) {
  const DLTensor* const q = AttestInput(call, "q");
  return q != NULL && AttestOutput(call, "out") != NULL ? ATTEST_OK : ATTEST_ERROR;
}

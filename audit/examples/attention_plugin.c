/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in in C99: softmax(q k^T / sqrt(D)) v in f32, with grouped heads. Build and audit it:
 *   cc -std=c99 -O2 -fPIC -shared -I PREFIX/include attention_plugin.c -o attention_plugin.so -lm
 *   attest audit --plugin ./attention_plugin.so --suite quick */
#include <attest/plugin.h>
#include <math.h>

const char* attest_plugin_info(void) {
  return "{\"abi\":1,\"name\":\"attention_plugin\",\"version\":\"1.0\",\"supports\":{"
         "\"dtypes\":[\"f32\"],\"scores\":[\"dot\"],\"masks\":[],\"features\":[\"gqa\",\"v_dim\"],"
         "\"outputs\":[\"out\"],\"empty_row\":\"zero\"},"
         "\"arithmetic\":{\"profile\":\"f32\",\"deterministic\":true,\"batch_invariant\":true}}";
}

static float* At(const DLTensor* t, int64_t b, int64_t h, int64_t i, int64_t c) {
  const int64_t* const s = t->strides; /* in elements, of any layout */
  return (float*)t->data + b * s[0] + h * s[1] + i * s[2] + c * s[3];
}

static float Score(const DLTensor* q, const DLTensor* k, int64_t b, int64_t h, int64_t i,
                   int64_t j) {
  const int64_t group = h / (q->shape[1] / k->shape[1]);
  float sum = 0.0f;
  for (int64_t d = 0; d < q->shape[3]; ++d) sum += *At(q, b, h, i, d) * *At(k, b, group, j, d);
  return sum / sqrtf((float)q->shape[3]);
}

static void AttendRow(const AttestCall* call, int64_t b, int64_t h, int64_t i) {
  const DLTensor *q = AttestInput(call, "q"), *k = AttestInput(call, "k");
  const DLTensor *v = AttestInput(call, "v"), *out = AttestOutput(call, "out");
  const int64_t keys = k->shape[2], group = h / (q->shape[1] / k->shape[1]);
  float largest = -INFINITY, sum = 0.0f;
  for (int64_t j = 0; j < keys; ++j) largest = fmaxf(largest, Score(q, k, b, h, i, j));
  for (int64_t c = 0; c < v->shape[3]; ++c) *At(out, b, h, i, c) = 0.0f;
  for (int64_t j = 0; j < keys; ++j) {
    const float weight = expf(Score(q, k, b, h, i, j) - largest);
    sum += weight;
    for (int64_t c = 0; c < v->shape[3]; ++c)
      *At(out, b, h, i, c) += weight * *At(v, b, group, j, c);
  }
  for (int64_t c = 0; keys > 0 && c < v->shape[3]; ++c) *At(out, b, h, i, c) /= sum;
}

int attest_plugin_run(const AttestCall* call) {
  const int64_t* const shape = AttestInput(call, "q")->shape; /* [B, Hq, Tq, D] */
  for (int64_t b = 0; b < shape[0]; ++b) {
    for (int64_t h = 0; h < shape[1]; ++h) {
      for (int64_t i = 0; i < shape[2]; ++i) AttendRow(call, b, h, i);
    }
  }
  return ATTEST_OK;
}

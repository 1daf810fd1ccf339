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

static float* Row(const DLTensor* t, int64_t b, int64_t h, int64_t i) {
  return (float*)t->data + b * t->strides[0] + h * t->strides[1] + i * t->strides[2];
}

static float Score(const DLTensor* q, const float* q_row, const DLTensor* k, const float* k_row) {
  float sum = 0.0f;
  for (int64_t d = 0; d < q->shape[3]; ++d) {
    sum += q_row[d * q->strides[3]] * k_row[d * k->strides[3]];
  }
  return sum / sqrtf((float)q->shape[3]);
}

static void AttendRow(const DLTensor* q, const DLTensor* k, const DLTensor* v, const DLTensor* out,
                      int64_t b, int64_t h, int64_t i) {
  const int64_t group = h / (q->shape[1] / k->shape[1]);
  const float* const q_row = Row(q, b, h, i);
  float* const out_row = Row(out, b, h, i);
  float largest = -INFINITY, sum = 0.0f;
  for (int64_t c = 0; c < v->shape[3]; ++c) out_row[c * out->strides[3]] = 0.0f;
  for (int64_t j = 0; j < k->shape[2]; ++j) {
    const float score = Score(q, q_row, k, Row(k, b, group, j));
    if (score > largest) largest = score;
  }
  for (int64_t j = 0; j < k->shape[2]; ++j) {
    const float weight = expf(Score(q, q_row, k, Row(k, b, group, j)) - largest);
    sum += weight;
    for (int64_t c = 0; c < v->shape[3]; ++c) {
      out_row[c * out->strides[3]] += weight * Row(v, b, group, j)[c * v->strides[3]];
    }
  }
  if (k->shape[2] == 0) return; /* no key: the row is zero, as declared */
  for (int64_t c = 0; c < v->shape[3]; ++c) out_row[c * out->strides[3]] /= sum;
}

int attest_plugin_run(const AttestCall* call) {
  const DLTensor *q = AttestInput(call, "q"), *k = AttestInput(call, "k");
  const DLTensor *v = AttestInput(call, "v"), *out = AttestOutput(call, "out");
  if (call->num_inputs > 3 || call->num_outputs > 1 || out->dtype.bits != 32) {
    return ATTEST_UNSUPPORTED; /* what is declared keeps these away */
  }
  for (int64_t b = 0; b < q->shape[0]; ++b) {
    for (int64_t h = 0; h < q->shape[1]; ++h) {
      for (int64_t i = 0; i < q->shape[2]; ++i) AttendRow(q, k, v, out, b, h, i);
    }
  }
  return ATTEST_OK;
}

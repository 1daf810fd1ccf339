// SPDX-License-Identifier: Apache-2.0
#include "experiments/seq2seq/model.h"

#include "experiments/seq2seq/model-inl.h"

namespace attest {

template class Model<float>;
template class Model<double>;

}  // namespace attest

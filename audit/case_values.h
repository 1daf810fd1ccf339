// SPDX-License-Identifier: Apache-2.0
// Elements of the tensors of generated cases.
#pragma once

#include "audit/case_spec.h"
#include "core/random.h"

namespace attest {

// q, k or v ('q', 'k', 'v') of a specification, of this shape.
Tensor DrawOperand(const CaseSpec& spec, char name, const Shape& shape, const RandomStream& stream);

// [B, Hq, Tq, Tk] with 1 for the axes that are broadcast.
Shape BroadcastShape(const Dimensions& s, const Broadcast& broadcast);

// Normal numbers times `factor`.
Tensor DrawNormal(DType dtype, const Shape& shape, const RandomStream& stream, double factor = 1.0);

// Boolean mask, bias and document ids of a specification that has them.
Tensor DrawMask(const CaseSpec& spec, const RandomStream& stream);
Tensor DrawBias(const CaseSpec& spec, DType dtype, const RandomStream& stream);
Tensor DrawDocuments(const CaseSpec& spec, bool of_keys);

// NaN and infinities in k and v of every key that no query of its group may see.
void FillInvisibleKeys(Case* problem);

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
// Subjects that break laws: the tiled kernel with one thing wrong in its inputs or its outputs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "audit/subject.h"

namespace attest {

struct BrokenSubject {
  std::string law;      // the law that it breaks, among others
  std::string mistake;  // in a few words
  // What the kernel is given instead of a case, and what becomes of its outputs; either may be
  // empty.
  std::function<void(Case*)> misread;
  std::function<void(const Case&, const CallOptions&, TensorMap*)> spoil;
};

// One for each law at least.
const std::vector<BrokenSubject>& BrokenSubjects();

std::unique_ptr<Subject> MakeBrokenSubject(const BrokenSubject& broken);

}  // namespace attest

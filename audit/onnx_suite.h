// SPDX-License-Identifier: Apache-2.0
// Node tests of ONNX as cases with their stored results: Attention 23 and 24, Softmax, LogSoftmax.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "audit/onnx_file.h"
#include "audit/subject.h"
#include "audit/suite.h"
#include "core/status.h"

namespace attest {

// What a data set of a test becomes: one case for the results, and one for a matrix of scores.
struct OnnxCase {
  SuiteCase item;
  TensorMap stored;                     // results of the test, as outputs of the contract
  std::vector<Complaint> complaints{};  // what is wrong with outputs that are no result
  Index copied = 0;                     // elements of those outputs, compared bit for bit
};

// A test, or a part of one, that cannot be judged.
struct OnnxDeclined {
  std::string test;
  std::string reason;
};

struct OnnxSuite {
  std::vector<OnnxCase> cases;
  std::vector<OnnxDeclined> declined;
};

// Cases of one data set, named `name` and a suffix. Unsupported where the contract has no words for
// the test; any other error says what contradicts the operator's definition. What cannot be judged
// of the test is added to `declined`.
StatusOr<std::vector<OnnxCase>> AttentionCases(const std::string& name, const OnnxModel& model,
                                               const OnnxDataSet& data,
                                               std::vector<OnnxDeclined>* declined);
StatusOr<std::vector<OnnxCase>> SoftmaxCases(const std::string& name, const OnnxModel& model,
                                             const OnnxDataSet& data);

// `directory` is one node test, a folder of them, or one with them in its folder "node". Tests of
// other operators are declined. An error where there is no test, none that can be judged, or a
// damaged one.
StatusOr<OnnxSuite> MakeOnnxSuite(const std::filesystem::path& directory);

// The cases of a suite as Auditor takes them.
std::vector<SuiteCase> CasesOf(const OnnxSuite& suite);

// The stored results as a subject; it takes the suite's own cases alone.
std::unique_ptr<Subject> MakeStoredSubject(OnnxSuite suite, const std::string& name);

// What was declined and why, with numbers, one line a reason; of an audit of the stored results
// also how many elements of caches were compared bit for bit.
enum class OnnxAudited { kStoredResults, kImplementation };
std::vector<std::string> RemarksOn(const OnnxSuite& suite, OnnxAudited audited);

}  // namespace attest

// SPDX-License-Identifier: Apache-2.0
#include "audit/onnx_suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/file_io.h"

namespace attest {
namespace {

// Folders with a model.onnx: the directory itself, else those in it, else those in its "node".
StatusOr<std::vector<std::filesystem::path>> NodeTests(const std::filesystem::path& directory) {
  std::error_code error;
  const auto is_test = [&](const std::filesystem::path& folder) {
    return std::filesystem::is_regular_file(folder / "model.onnx", error);
  };
  if (is_test(directory)) return std::vector{directory};
  if (!std::filesystem::is_directory(directory, error)) {
    return NotFound(Printable(directory.native()) + ": no such directory of node tests");
  }
  std::vector<std::filesystem::path> tests;
  for (const std::filesystem::path& root : {directory, directory / "node"}) {
    if (!tests.empty() || !std::filesystem::is_directory(root, error)) continue;
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(root, failed)) {
      if (is_test(entry.path())) tests.push_back(entry.path());
    }
    if (failed) return NotFound(Printable(root.native()) + ": " + failed.message());
  }
  if (tests.empty()) {
    return NotFound(Printable(directory.native()) +
                    ": no node test of ONNX (a folder with model.onnx) in it");
  }
  std::sort(tests.begin(), tests.end());
  return tests;
}

// Whether the operator is one whose tests become cases; else why not.
Status CheckOperator(const OnnxModel& model) {
  if (model.nodes > 1) return Unsupported("a graph of several nodes");
  const bool known =
      model.domain.empty() &&
      (model.op_type == "Attention" || model.op_type == "Softmax" || model.op_type == "LogSoftmax");
  if (!known) return Unsupported("another operator than Attention, Softmax and LogSoftmax");
  return Status();
}

// Adds the cases of one test.
Status AddTest(const std::filesystem::path& directory, OnnxSuite* suite) {
  const std::string test = directory.filename().empty()
                               ? directory.parent_path().filename().string()
                               : directory.filename().string();
  StatusOr<OnnxModel> model = ReadOnnxModel(directory);
  if (!model.ok()) return model.status();
  if (Status s = CheckOperator(*model); !s.ok()) {
    suite->declined.push_back({test, s.message()});
    return Status();
  }
  StatusOr<std::vector<OnnxDataSet>> sets = ReadOnnxDataSets(directory, *model);
  if (!sets.ok()) return sets.status();
  for (std::size_t i = 0; i < sets->size(); ++i) {
    const std::string name = i == 0 ? test : fmt::format("{}.{}", test, i);
    StatusOr<std::vector<OnnxCase>> cases =
        model->op_type == "Attention" ? AttentionCases(name, *model, (*sets)[i], &suite->declined)
                                      : SoftmaxCases(name, *model, (*sets)[i]);
    if (cases.status().code() == StatusCode::kUnsupported) {
      suite->declined.push_back({name, cases.status().message()});
      continue;
    }
    if (!cases.ok()) {
      return InvalidArgument(fmt::format("{} (data set {}): {}", Printable(directory.native()), i,
                                         cases.status().message()));
    }
    std::move(cases->begin(), cases->end(), std::back_inserter(suite->cases));
  }
  return Status();
}

class StoredSubject : public Subject {
 public:
  StoredSubject(OnnxSuite suite, SubjectInfo info) : info_(std::move(info)) {
    for (OnnxCase& item : suite.cases) {
      cases_.emplace(item.item.problem.name, std::move(item));
    }
  }

  const SubjectInfo& info() const override { return info_; }

  Outcome Run(const Case& problem, const CallOptions&) const override {
    const auto found = cases_.find(problem.name);
    if (found == cases_.end()) return Outcome::Unsupported("no stored result for the case");
    Outcome outcome = Outcome::Ok(found->second.stored);
    outcome.complaints = found->second.complaints;
    return outcome;
  }

 private:
  std::map<std::string, OnnxCase> cases_;
  SubjectInfo info_;
};

}  // namespace

StatusOr<OnnxSuite> MakeOnnxSuite(const std::filesystem::path& directory) {
  StatusOr<std::vector<std::filesystem::path>> tests = NodeTests(directory);
  if (!tests.ok()) return tests.status();
  OnnxSuite suite;
  for (const std::filesystem::path& test : *tests) {
    if (Status s = AddTest(test, &suite); !s.ok()) return s;
  }
  std::set<std::string> names;
  for (const OnnxCase& item : suite.cases) {
    const std::string& name = item.item.problem.name;
    if (!names.insert(name).second) {
      return InvalidArgument(
          fmt::format("{}: two cases are named {}", Printable(directory.native()), Quoted(name)));
    }
  }
  if (suite.cases.empty()) {
    return Unsupported(fmt::format(
        "{}: none of its {} node tests can be judged ({}: {})", Printable(directory.native()),
        tests->size(), Printable(suite.declined.front().test), suite.declined.front().reason));
  }
  return suite;
}

std::vector<SuiteCase> CasesOf(const OnnxSuite& suite) {
  std::vector<SuiteCase> cases;
  for (const OnnxCase& item : suite.cases) cases.push_back(item.item);
  return cases;
}

std::unique_ptr<Subject> MakeStoredSubject(OnnxSuite suite, const std::string& name) {
  SubjectInfo info;
  info.name = name;
  info.description = "outputs stored with node tests of ONNX";
  info.recorded = true;
  return std::make_unique<StoredSubject>(std::move(suite), std::move(info));
}

std::vector<std::string> RemarksOn(const OnnxSuite& suite, OnnxAudited audited) {
  std::vector<std::string> remarks;
  Index copied = 0;
  for (const OnnxCase& item : suite.cases) copied += item.copied;
  if (copied > 0 && audited == OnnxAudited::kStoredResults) {
    remarks.push_back(fmt::format(
        "{} elements of present_key and present_value were compared bit for bit", copied));
  }
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const OnnxDeclined& declined : suite.declined) {
    by_reason[declined.reason].push_back(declined.test);
  }
  for (const auto& [reason, tests] : by_reason) {
    remarks.push_back(fmt::format("skipped: {} ({} of the node tests, the first is {})", reason,
                                  tests.size(), Printable(tests.front())));
  }
  return remarks;
}

}  // namespace attest

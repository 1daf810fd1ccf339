// SPDX-License-Identifier: Apache-2.0
// Any combination of features: the tiled kernel conforms, and parts of the case are cases.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <memory>
#include <string>

#include "audit/audit.h"
#include "audit/builtin.h"
#include "audit/case_slice.h"
#include "properties/case_generator.h"

namespace attest {
namespace {

RC_GTEST_PROP(AnyFeatures, TheTiledKernelConforms, ()) {
  const DrawnCase drawn = *ArbitraryFeatures();
  Classify(drawn.spec);
  const StatusOr<std::unique_ptr<Subject>> subject = MakeBuiltinSubject("tiled");
  RC_ASSERT(subject.ok());
  Auditor auditor({{"drawn", "drawn", MakeCase(drawn.spec, drawn.seed)}}, {});
  const StatusOr<nlohmann::ordered_json> record = auditor.Audit(**subject, "test");
  RC_ASSERT(record.ok());
  RC_CLASSIFY((*record)["elements"]["not_judged"] > 0, std::string("with elements not judged"));
  if ((*record)["verdict"] != "conforms" && (*record)["verdict"] != "nothing audited") {
    RC_FAIL((*record)["findings"].dump(2));
  }
}

RC_GTEST_PROP(AnyFeatures, EveryPartOfACaseIsACase, ()) {
  const DrawnCase drawn = *ArbitraryFeatures();
  Case problem = MakeCase(drawn.spec, drawn.seed);
  RC_ASSERT(FinishCase(&problem).ok());
  for (const CaseAxis axis :
       {CaseAxis::kBatch, CaseAxis::kKvHeads, CaseAxis::kGroupMembers, CaseAxis::kQueries,
        CaseAxis::kKeys, CaseAxis::kQueryDims, CaseAxis::kValueDims}) {
    const Index extent = Extent(problem, axis);
    if (extent < 2) continue;
    Case part = KeepEntries(problem, axis, {*rc::gen::inRange<Index>(0, extent)});
    RC_ASSERT(FinishCase(&part).ok());
    RC_ASSERT(Extent(part, axis) == 1);
  }
}

}  // namespace
}  // namespace attest

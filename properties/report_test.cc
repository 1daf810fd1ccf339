// SPDX-License-Identifier: Apache-2.0
// Reports: escaping, tolerance of incomplete records, stable bytes, and well-formed pages.
#include "reports/report.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "reports/axis.h"
#include "reports/case_family.h"
#include "reports/csv.h"
#include "reports/html.h"
#include "reports/markdown.h"
#include "reports/model.h"
#include "reports/svg_plot.h"
#include "reports/text.h"

namespace attest {
namespace {

using reports::Json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Says what is wrong with the nesting of tags, attributes or text of an HTML document; empty if
// nothing is. Knows the void elements of HTML and <tag/> of SVG, and skips the style sheet.
std::string ImbalanceOf(const std::string& html) {
  const std::vector<std::string> kVoid = {"meta", "link", "br", "hr", "img"};
  std::vector<std::string> open;
  for (std::size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at)) {
    if (html.compare(at, 9, "<!DOCTYPE") == 0) {
      ++at;
      continue;
    }
    std::size_t end = at + 1;
    bool quoted = false;
    while (end < html.size() && (quoted || html[end] != '>')) {
      if (html[end] == '"') quoted = !quoted;
      if (html[end] == '<') return "'<' inside a tag: " + html.substr(at, 60);
      ++end;
    }
    if (end >= html.size()) return "a tag without end: " + html.substr(at, 60);
    const bool closing = html[at + 1] == '/';
    const std::size_t name_at = at + (closing ? 2 : 1);
    const std::size_t name_end = html.find_first_of(" \n/>", name_at);
    const std::string name = html.substr(name_at, name_end - name_at);
    if (name.empty()) return "a tag without name: " + html.substr(at, 60);
    if (closing) {
      if (open.empty() || open.back() != name) return "unexpected </" + name + ">";
      open.pop_back();
    } else if (html[end - 1] != '/' && std::find(kVoid.begin(), kVoid.end(), name) == kVoid.end()) {
      open.push_back(name);
      if (name == "style") {
        end = html.find("</style", end);
        if (end == std::string::npos) return "<style> without end";
        at = end;
        continue;
      }
    }
    at = end;
  }
  return open.empty() ? "" : "<" + open.back() + "> without end";
}

// Ids that occur twice and fragments that lead nowhere.
std::string BrokenLinkOf(const std::string& html) {
  const auto values = [&](const std::string& prefix) {
    std::vector<std::string> found;
    for (std::size_t at = html.find(prefix); at != std::string::npos; at = html.find(prefix, at)) {
      at += prefix.size();
      found.push_back(html.substr(at, html.find('"', at) - at));
    }
    return found;
  };
  std::vector<std::string> ids = values(" id=\"");
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice != ids.end()) return "id twice: " + *twice;
  for (const std::string& target : values(" href=\"#")) {
    if (!std::binary_search(ids.begin(), ids.end(), target)) return "no id: " + target;
  }
  return "";
}

Json Audit(const std::string& name, const std::string& verdict) {
  Json audit = Json::parse(R"({"attest_result": 1, "suites": ["quick"],
    "cases": {"run": 2, "passed": 1, "failed": 1, "unsupported": 0, "crashed": 0},
    "case_results": [
      {"case": "quick/causal-1", "suite": "quick", "family": "causal", "status": "passed", "logit_spread": 3,
       "min_entropy": 0.5, "outputs": [{"tensor": "out", "elements": 10,
       "not_correctly_rounded": 2, "max_ulp": 0.75, "max_scaled_error": 1.5,
       "max_bound_ratio": 0.25}]},
      {"case": "quick/causal-2", "suite": "quick", "family": "causal", "status": "failed", "outputs": [
       {"tensor": "out", "elements": 10, "max_ulp": "NaN", "max_bound_ratio": "Infinity"}]}],
    "laws": [{"law": "shift", "description": "d", "draws": 5, "violations": 0}],
    "manifest": {"attest_version": "0.1.0", "seed": 18446744073709551615,
                 "libraries": {"MPFR": "4.2.0"}, "command": "attest audit --seed 1"}})");
  audit["implementation"]["name"] = name;
  audit["verdict"] = verdict;
  return audit;
}

Json WithFinding(Json audit) {
  audit["findings"] = Json::parse(R"([{"code": "mask.causal", "title": "Wrong alignment",
    "case": "quick/causal-2", "tensor": "out", "explanation": "Because.",
    "reproducer": "attest audit --case 'a' | tee", "worst": {"index": [0, 1], "got": 0.1234567,
    "expected": "0x1p-3", "ulp": 12, "bound_ratio": 3.5},
    "minimal": {"description": "1 query, 2 keys", "replay": "attest audit --cases m"}}])");
  return audit;
}

Json Experiment(const std::string& name) {
  Json experiment = Json::parse(R"({"attest_experiment": 1, "title": "T", "claim": "c",
    "source": "s", "rule": "r", "verdict": "reproduced", "summary": "fine",
    "tables": [{"title": "A", "columns": ["n", "e"], "rows": [[1, 0.1], [2, "NaN"]]}],
    "plots": [{"title": "P", "x": {"label": "n", "scale": "log"}, "y": {"label": "e"},
      "series": [{"name": "s1", "points": [[1, 2], [2, "Infinity"], [4, 3], [0, 1]]}]}]})");
  experiment["name"] = name;
  return experiment;
}

std::string Page(const Json& records) {
  const StatusOr<reports::Report> report = reports::ReadRecords(records);
  EXPECT_TRUE(report.ok()) << report.status().message();
  if (!report.ok()) return "";
  const std::string html = reports::HtmlOf(*report);
  EXPECT_EQ(ImbalanceOf(html), "");
  EXPECT_EQ(BrokenLinkOf(html), "");
  return html;
}

std::string Summary(const Json& records) {
  const StatusOr<reports::Report> report = reports::ReadRecords(records);
  EXPECT_TRUE(report.ok()) << report.status().message();
  if (!report.ok()) return "";
  return reports::MarkdownOf(*report);
}

std::string ReadFile(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// A directory of this test's own, removed at its end.
class ReportFiles : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    directory_ = std::filesystem::temp_directory_path() /
                 ("attest_report_" + std::to_string(getpid()) + "_" + test->name());
    std::filesystem::remove_all(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path directory_;
};

TEST(BalanceChecker, SeesBrokenPages) {
  EXPECT_EQ(ImbalanceOf("<p>a<br>b <b title=\"x > y\">c</b></p><path d=\"M0\"/>"), "");
  EXPECT_NE(ImbalanceOf("<p><b></p></b>"), "");
  EXPECT_NE(ImbalanceOf("<p>"), "");
  EXPECT_NE(ImbalanceOf("<p>1 < 2</p>"), "");
  EXPECT_NE(BrokenLinkOf("<p id=\"a\"></p><p id=\"a\"></p>"), "");
  EXPECT_NE(BrokenLinkOf("<a href=\"#b\">"), "");
}

TEST(ReportText, EscapesForHtmlAndMarkdown) {
  EXPECT_EQ(reports::EscapeHtml("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
  EXPECT_EQ(reports::EscapeMarkdown("a|b\n*c* <d> `e`"), "a\\|b \\*c\\* \\<d\\> \\`e\\`");
  EXPECT_EQ(reports::EscapeMarkdown("- x"), "\\- x");
  EXPECT_EQ(reports::EscapeMarkdown("12. x 1.5"), "12\\. x 1.5");
  EXPECT_EQ(reports::MarkdownCode("a `b``"), "``` a `b`` ```");
}

TEST(ReportText, ReplacesWhatIsNotText) {
  const std::string bad = "\uFFFD";
  EXPECT_EQ(reports::CleanText("\u00E9\u2211\U0001F600"), "\u00E9\u2211\U0001F600");
  EXPECT_EQ(reports::CleanText("a\xC3"), "a" + bad);
  EXPECT_EQ(reports::CleanText("\xC0\xAF"), bad + bad);            // overlong
  EXPECT_EQ(reports::CleanText("\xED\xA0\x80"), bad + bad + bad);  // surrogate
  EXPECT_EQ(reports::CleanText(std::string("\0\x1B[", 3)), bad + bad + "[");
  EXPECT_EQ(reports::CleanText("\u202Eabc"), bad + "abc");  // would reverse what follows
  EXPECT_EQ(reports::Shorten("\u00E9\u00E9", 3), "\u00E9\u2026");
}

TEST(ReportText, RoundsNumbersForPeople) {
  const std::vector<std::pair<double, std::string>> cases = {{0, "0"},
                                                             {-0.0, "-0"},
                                                             {0.5, "0.5"},
                                                             {1.23456, "1.235"},
                                                             {1e-3, "0.001"},
                                                             {9.996e-4, "9.996e-4"},
                                                             {2.4e-7, "2.4e-7"},
                                                             {-12345.6, "-12,346"},
                                                             {1023.7, "1024"},
                                                             {999999.4, "999,999"},
                                                             {1e6, "1e6"},
                                                             {1.7976931348623157e308, "1.798e308"},
                                                             {5e-324, "4.941e-324"},
                                                             {NAN, "NaN"},
                                                             {-kInfinity, "-Infinity"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(reports::FormatNumber(value), text);
  EXPECT_EQ(reports::FormatExact(0.1), "0.1");
  EXPECT_EQ(reports::FormatCount(-1234567), "-1,234,567");
  EXPECT_EQ(reports::FormatCount(100000), "100,000");
}

TEST(ReportText, ViolationNeverPrintsAsOne) {
  EXPECT_EQ(reports::FormatRatio(std::nextafter(1.0, 2.0)), "just over 1");
  EXPECT_EQ(reports::FormatRatio(1.0), "1");
  EXPECT_EQ(reports::FormatRatio(0.99999), "just under 1");
}

TEST(ReportText, NamesAreSafeAsPaths) {
  EXPECT_EQ(reports::SafeName("../../etc/passwd"), "etc-passwd");
  EXPECT_EQ(reports::SafeName(""), "unnamed");
  EXPECT_EQ(reports::SafeName(".-."), "unnamed");
  EXPECT_EQ(reports::SafeName("a b\"<"), "a-b--");
}

TEST(ReportCsv, QuotesAndKeepsDigits) {
  const Json table = Json::parse(R"({"columns": ["a,b", "say \"x\""],
    "rows": [[0.1, "two\nlines"], [null, "NaN"], [12345678, 1e-300], [""], "no row"]})");
  EXPECT_EQ(reports::CsvOf(table),
            "\"a,b\",\"say \"\"x\"\"\"\n0.1,\"two\nlines\"\n,NaN\n12345678,1e-300\n\"\"\n");
  EXPECT_EQ(reports::CsvOf(Json()), "");
}

TEST(ReportCases, FamiliesKeepTheirWorstErrors) {
  const std::vector<reports::CaseFamily> families =
      reports::CaseFamilies(Audit("a", "conforms")["case_results"]);
  ASSERT_EQ(families.size(), 1u);
  EXPECT_EQ(families[0].cases, 2);
  EXPECT_TRUE(std::isnan(*families[0].max_ulp));
  EXPECT_EQ(*families[0].max_bound_ratio, kInfinity);
  EXPECT_EQ(*families[0].max_scaled_error, 1.5);
}

TEST(ReportCases, SuitesStayInOrderAndCasesWithoutAFamilyStandAlone) {
  const Json cases = Json::parse(R"([
    {"case": "a", "suite": "real", "outputs": [{"tensor": "out", "max_bound_ratio": 0.1}]},
    {"case": "b", "suite": "real", "outputs": [{"tensor": "out", "max_bound_ratio": 0.2}]},
    {"case": "c", "suite": "quick", "outputs": [{"tensor": "out", "max_bound_ratio": 0.9}]}])");
  const std::vector<reports::CaseFamily> families = reports::CaseFamilies(cases);
  ASSERT_EQ(families.size(), 3u);
  EXPECT_EQ(families[0].family, "b");
  EXPECT_EQ(families[1].family, "a");
  EXPECT_EQ(families[2].family, "c");
}

TEST(ReportAxis, HoldsAnyRangeOfDoubles) {
  const double largest = std::numeric_limits<double>::max();
  const double smallest = std::numeric_limits<double>::denorm_min();
  const std::vector<std::vector<double>> ranges = {{0},
                                                   {largest},
                                                   {-largest, largest},
                                                   {smallest},
                                                   {0, smallest},
                                                   {1, 1 + 1e-16},
                                                   {1e15, 1e15 + 1},
                                                   {-3, 7},
                                                   {1e-9, 2e-9},
                                                   {smallest, largest},
                                                   {100, 130},
                                                   {16, 16384},
                                                   {largest / 2, largest}};
  for (const std::vector<double>& values : ranges) {
    for (const reports::Scale scale : {reports::Scale::kLinear, reports::Scale::kLog}) {
      const auto accepted = [&](double v) { return reports::Axis::Accepts(v, scale); };
      if (!std::all_of(values.begin(), values.end(), accepted)) continue;
      const reports::Axis axis = reports::Axis::Fit(values, scale, true);
      for (const double value : values) {
        EXPECT_GE(axis.Position(value), 0) << value;
        EXPECT_LE(axis.Position(value), 1) << value;
      }
      EXPECT_GE(axis.ticks().size(), 1u) << values[0];
      EXPECT_LE(axis.ticks().size(), 9u) << values[0];
      for (std::size_t i = 1; i < axis.ticks().size(); ++i) {
        EXPECT_GT(axis.ticks()[i].position, axis.ticks()[i - 1].position) << values[0];
        EXPECT_NE(axis.ticks()[i].label + axis.ticks()[i].exponent,
                  axis.ticks()[i - 1].label + axis.ticks()[i - 1].exponent);
      }
    }
  }
}

TEST(ReportPlot, LeavesOutWhatCannotBeDrawnAndSaysSo) {
  const reports::Drawing drawing = reports::DrawPlot(Experiment("e")["plots"][0], "p");
  EXPECT_EQ(ImbalanceOf(drawing.svg), "");
  ASSERT_EQ(drawing.notes.size(), 1u);
  EXPECT_NE(drawing.notes[0].find("2 points are not drawn"), std::string::npos);
  // The infinite point interrupts the line: two pieces of one point each.
  const std::size_t line = drawing.svg.find("class=\"line\" d=\"");
  const std::string path = drawing.svg.substr(line, drawing.svg.find("\"/>", line) - line);
  EXPECT_EQ(std::count(path.begin(), path.end(), 'M'), 2);
}

TEST(ReportPlot, DrawsOnePointExtremesAndManySeries) {
  Json plot = Json::parse(R"({"series": [{"points": [[1, 1]]}]})");
  EXPECT_NE(reports::DrawPlot(plot, "p").svg.find("class=\"mark\""), std::string::npos);
  plot = Json::parse(R"({"series": [{"points": [[-1.7e308, 5e-324], [1.7e308, 1.7e308]]}]})");
  std::string svg = reports::DrawPlot(plot, "p").svg;
  EXPECT_EQ(ImbalanceOf(svg), "");
  EXPECT_EQ(svg.find("nan,"), std::string::npos);
  EXPECT_EQ(svg.find("inf,"), std::string::npos);
  plot = Json::parse(R"({"series": []})");
  EXPECT_TRUE(reports::DrawPlot(plot, "p").svg.empty());
  for (int i = 0; i < 9; ++i) plot["series"].push_back({{"points", {{1, i}, {2, i}}}});
  const reports::Drawing drawing = reports::DrawPlot(plot, "p");
  EXPECT_NE(drawing.svg.find("class=\"s7\""), std::string::npos);
  EXPECT_EQ(drawing.svg.find("class=\"s8\""), std::string::npos);
  EXPECT_NE(drawing.notes.at(0).find("8 of 9 series"), std::string::npos);
}

TEST(ReportPage, FindingsAreTheFirstThingToSee) {
  const Json records = {Audit("good", "conforms"), WithFinding(Audit("bad", "findings"))};
  const std::string html = Page(records);
  const std::size_t headline = html.find("1 finding in 1 of 2 implementations</h2>");
  EXPECT_NE(html.find("<code>1 query, 2 keys</code>"), std::string::npos);
  EXPECT_NE(html.find("attest audit --cases m"), std::string::npos);
  ASSERT_NE(headline, std::string::npos);
  EXPECT_EQ(html.find("<h2"), html.rfind("<h2", headline));  // before all other sections
  EXPECT_LT(html.find("Wrong alignment"), html.find("id=\"implementations\""));
  EXPECT_TRUE(html.find("<title>1 finding in") != std::string::npos);
  EXPECT_TRUE(Summary(records).starts_with("# Numerics of attention: \u274C 1 finding in 1 of 2"));
  // A record that lists findings cannot call itself conforming.
  EXPECT_NE(Page(Json::array({WithFinding(Audit("liar", "conforms"))})).find("1 finding in 1 of 1"),
            std::string::npos);
  EXPECT_NE(Page(Json::array({Audit("good", "conforms")})).find("The implementation conforms</h2>"),
            std::string::npos);
}

TEST(ReportPage, TextStaysText) {
  const std::string attack = "</style><script>alert(1)</script>\" onload=\"x|y";
  Json experiment = Experiment(attack);
  for (const char* key : {"title", "question", "claim", "source", "rule", "verdict", "summary"}) {
    experiment[key] = attack;
  }
  experiment["notes"] = {attack};
  experiment["tables"][0] = {{"title", attack}, {"columns", {attack}}, {"rows", {{attack}}}};
  Json& plot = experiment["plots"][0];
  plot["title"] = plot["note"] = plot["x"]["label"] = plot["y"]["label"] = attack;
  plot["series"][0]["name"] = attack;
  Json audit = WithFinding(Audit(attack, attack));
  for (auto& [key, value] : audit["findings"][0].items()) value = attack;
  audit["remarks"] = {attack};
  audit["manifest"][attack] = attack;
  audit["case_results"][0]["family"] = audit["laws"][0]["law"] = attack;
  const std::string html = Page({audit, experiment});
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("\" onload"), std::string::npos);
  EXPECT_EQ(std::count(html.begin(), html.end(), '\0'), 0);
  const std::string md = Summary({audit, experiment});
  EXPECT_NE(md.find("\\<script\\>"), std::string::npos);
  EXPECT_NE(md.find("x\\|y"), std::string::npos);
}

TEST(ReportPage, AsksNothingFromOutside) {
  const std::string html = Page({Audit("a", "conforms"), Experiment("e")});
  for (const char* request : {"http:", "https:", "src=", "url(", "@import", "<script"}) {
    EXPECT_EQ(html.find(request), std::string::npos) << request;
  }
  EXPECT_NE(html.find("<html lang=\"en\">"), std::string::npos);
  EXPECT_NE(html.find("href=\"csv/e-1.csv\""), std::string::npos);
  EXPECT_NE(html.find("18446744073709551615"), std::string::npos);  // every digit of a seed
}

TEST(ReportPage, ToleratesMissingAndMistypedFields) {
  const Json bare_audit = {{"attest_result", 1}};
  const Json bare_experiment = {{"attest_experiment", 1}};
  EXPECT_NE(Page({bare_audit, bare_experiment}).find("no verdict"), std::string::npos);
  Summary({bare_audit, bare_experiment});
  const std::vector<Json> values = {nullptr,
                                    true,
                                    -1,
                                    1e300,
                                    "text",
                                    Json::array({1, "x", nullptr}),
                                    Json::array({Json::object()}),
                                    Json::object({{"a", 1}}),
                                    Json::array({Json::array({Json::array()})})};
  const Json complete = {WithFinding(Audit("a", "findings")), Experiment("e")};
  const Json flat = complete.flatten();
  for (const auto& [pointer, unused] : flat.items()) {
    // Every part of every path takes every wrong value once.
    for (Json::json_pointer at(pointer); !at.empty(); at.pop_back()) {
      for (const Json& value : values) {
        Json damaged = complete;
        damaged[at] = value;
        const StatusOr<reports::Report> report = reports::ReadRecords(damaged);
        if (!report.ok()) continue;
        const std::string html = reports::HtmlOf(*report);
        ASSERT_EQ(ImbalanceOf(html), "") << at.to_string() << " = " << value;
        ASSERT_EQ(BrokenLinkOf(html), "") << at.to_string() << " = " << value;
        reports::MarkdownOf(*report);
      }
    }
  }
}

TEST(ReportPage, EmptyReportSaysSo) {
  EXPECT_NE(Page(Json::array()).find("This report holds no run records"), std::string::npos);
  EXPECT_NE(Summary(Json::array()).find("no run records"), std::string::npos);
}

TEST(ReportRecords, OthersAreRefused) {
  const std::vector<Json> bad = {Json::object(),
                                 Json(),
                                 "x",
                                 {1},
                                 {Json::object()},
                                 {{{"attest_result", 2}}},
                                 Json::array({{{"attest_result", 1}, {"attest_experiment", 1}}})};
  for (const Json& records : bad) {
    if (records.is_array() && records.empty()) continue;
    EXPECT_EQ(reports::ReadRecords(records).status().code(), StatusCode::kInvalidArgument)
        << records;
  }
}

TEST_F(ReportFiles, AreCompleteAndTheSameEveryTime) {
  const Json records = {WithFinding(Audit("a", "findings")), Experiment("E"), Experiment("e")};
  const Status status = WriteReport(directory_ / "deep" / "first", records);
  ASSERT_TRUE(status.ok()) << status.message();
  ASSERT_TRUE(WriteReport(directory_ / "second", records).ok());
  ASSERT_TRUE(WriteReport(directory_ / "second", records).ok());  // over the former
  for (const char* name : {"report.html", "report.md", "report.json", "junit.xml", "findings.sarif",
                           "csv/E-1.csv", "csv/e_2-1.csv"}) {
    const std::string text = ReadFile(directory_ / "deep" / "first" / name);
    EXPECT_FALSE(text.empty()) << name;
    EXPECT_EQ(text, ReadFile(directory_ / "second" / name)) << name;
  }
  EXPECT_EQ(Json::parse(ReadFile(directory_ / "second" / "report.json")), records);
  std::size_t count = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(directory_ / "second")) {
    if (file.is_regular_file()) ++count;
  }
  EXPECT_EQ(count, 7u);  // no temporary file stays
}

TEST_F(ReportFiles, BadRecordsWriteNothing) {
  EXPECT_EQ(WriteReport(directory_, Json::array({{{"attest_result", 3}}})).code(),
            StatusCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(directory_));
}

TEST_F(ReportFiles, AnObstacleGivesAStatus) {
  std::filesystem::create_directories(directory_ / "report.html" / "x");
  EXPECT_EQ(WriteReport(directory_, Json::array()).code(), StatusCode::kInternal);
  EXPECT_EQ(WriteReport(directory_ / "report.html" / "x", Json::array()).code(), StatusCode::kOk);
  EXPECT_EQ(WriteReport(directory_ / "report.html" / "x" / "report.md", Json::array()).code(),
            StatusCode::kInternal);
}

TEST_F(ReportFiles, InvalidUtf8IsReplaced) {
  Json audit = Audit("bad \xFF name", "conforms");
  ASSERT_TRUE(WriteReport(directory_, Json::array({audit})).ok());
  EXPECT_NE(ReadFile(directory_ / "report.html").find("bad \uFFFD name"), std::string::npos);
}

}  // namespace
}  // namespace attest

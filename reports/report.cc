// SPDX-License-Identifier: Apache-2.0
// Makes all files of a report in memory, then writes them, each all or nothing.
#include "reports/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <exception>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "reports/csv.h"
#include "reports/html.h"
#include "reports/junit.h"
#include "reports/markdown.h"
#include "reports/model.h"
#include "reports/sarif.h"
#include "reports/text.h"

namespace attest {
namespace {

using reports::Entry;
using reports::Report;

struct OutputText {
  std::string path;  // relative to the report's directory
  std::string text;
};

std::string JsonText(const nlohmann::ordered_json& json) {
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::vector<OutputText> SummariesOf(const Report& report) {
  std::vector<OutputText> files{{"report.md", reports::MarkdownOf(report)}};
  if (report.audits.empty()) return files;
  files.push_back({"junit.xml", reports::JunitOf(report)});
  files.push_back({"findings.sarif", JsonText(reports::SarifOf(report))});
  return files;
}

// In the order of writing: what the page links to comes before the page.
std::vector<OutputText> FilesOf(const Report& report, const nlohmann::ordered_json& records) {
  std::vector<OutputText> files = SummariesOf(report);
  for (const Entry& experiment : report.experiments) {
    std::size_t number = 0;
    for (const auto& table : reports::Items(*experiment.record, "tables")) {
      files.push_back({reports::CsvPath(experiment.id, ++number), reports::CsvOf(table)});
    }
  }
  files.push_back({"report.json", JsonText(records)});
  files.push_back({"report.html", reports::HtmlOf(report)});
  return files;
}

Status CannotWrite(const std::filesystem::path& file, const std::string& why) {
  return Internal(fmt::format("{}: cannot be written: {}", reports::CleanText(file.string()), why));
}

Status WriteAllOrNothing(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::path temporary = file;
  temporary += fmt::format(".{}.tmp", getpid());
  std::ofstream stream(temporary, std::ios::binary | std::ios::trunc);
  stream.write(text.data(), static_cast<std::streamsize>(text.size()));
  stream.close();
  std::error_code error;
  if (!stream) {
    std::filesystem::remove(temporary, error);
    return CannotWrite(file, "the file system refuses it");
  }
  std::filesystem::rename(temporary, file, error);
  if (error) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    return CannotWrite(file, error.message());
  }
  return {};
}

Status WriteFiles(const std::filesystem::path& directory, const std::vector<OutputText>& files) {
  std::error_code error;
  for (const OutputText& file : files) {
    const std::filesystem::path path = directory / file.path;
    std::filesystem::create_directories(path.parent_path(), error);
    if (error) return CannotWrite(path, error.message());
    if (Status status = WriteAllOrNothing(path, file.text); !status.ok()) return status;
  }
  return {};
}

template <class MakeFiles>
Status WriteRecords(const std::filesystem::path& directory, const nlohmann::ordered_json& records,
                    MakeFiles make_files) {
  try {
    const StatusOr<Report> report = reports::ReadRecords(records);
    if (!report.ok()) return report.status();
    return WriteFiles(directory, make_files(*report));
  } catch (const std::exception& error) {
    return Internal(fmt::format("the report cannot be made: {}", error.what()));
  }
}

}  // namespace

Status WriteReport(const std::filesystem::path& directory, const nlohmann::ordered_json& records) {
  return WriteRecords(directory, records,
                      [&](const Report& report) { return FilesOf(report, records); });
}

Status WriteSummaries(const std::filesystem::path& directory,
                      const nlohmann::ordered_json& records) {
  return WriteRecords(directory, records, SummariesOf);
}

}  // namespace attest

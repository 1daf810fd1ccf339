// SPDX-License-Identifier: Apache-2.0
// RFC 4180 quoting.
#include "reports/csv.h"

#include <fmt/format.h>

#include "reports/text.h"

namespace attest::reports {
namespace {

std::string CsvCell(const Json& value) {
  const std::string text = ExactTextOf(value);
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

void AppendLine(const Json& cells, std::string& csv) {
  if (!cells.is_array()) return;
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) line += (i == 0 ? "" : ",") + CsvCell(cells[i]);
  // One empty cell must not look like an empty line, which readers skip.
  csv += (line.empty() && !cells.empty() ? "\"\"" : line) + '\n';
}

}  // namespace

std::string CsvOf(const Json& table) {
  std::string csv;
  const Json& columns = Items(table, "columns");
  if (!columns.empty()) AppendLine(columns, csv);
  for (const Json& row : Items(table, "rows")) AppendLine(row, csv);
  return csv;
}

std::string CsvPath(const std::string& id, std::size_t number) {
  return fmt::format("csv/{}-{}.csv", id, number);
}

}  // namespace attest::reports

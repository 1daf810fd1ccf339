// SPDX-License-Identifier: Apache-2.0
// The small pieces of the page: badges, tables, lists of facts, code.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reports/fields.h"
#include "reports/model.h"

namespace attest::reports {

// A verdict with its mark; the mark tells the tone without colour.
std::string BadgeHtml(const Verdict& verdict);

// A table in a container of its own that scrolls. All cells are HTML; in every row the first is the
// row's header. Cells of numeric columns are aligned to the right.
struct HtmlTable {
  struct Column {
    std::string title;  // HTML
    bool numeric = false;
  };
  std::string caption;  // plain text
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
};
std::string ToHtml(const HtmlTable& table);

// Whether every cell of column `index` of a record's table is a number, stands for one, or is
// absent.
bool IsNumericColumn(const Json& rows, std::size_t index);

// A record's table {"title", "columns", "rows"}; `caption` stands in for a missing title.
std::string RecordTableHtml(const Json& table, const std::string& caption);

// Terms and their text (HTML) as a description list; those without text are left out.
std::string FactsHtml(const std::vector<std::pair<std::string, std::string>>& facts);

// A paragraph of plain text; nothing for no text.
std::string ParagraphHtml(std::string_view text, std::string_view css_class = "");

// A command or a path on lines of its own.
std::string CodeBlockHtml(std::string_view code);

// A list of the texts of a JSON array; nothing when it has none.
std::string ListHtml(const Json& texts, std::string_view heading);

}  // namespace attest::reports

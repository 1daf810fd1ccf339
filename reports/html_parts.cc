// SPDX-License-Identifier: Apache-2.0
// Builds the small pieces of the page.
#include "reports/html_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/text.h"

namespace attest::reports {
namespace {

std::string CellHtml(const Json& value) {
  const std::string text = TextOf(value);
  return EscapeHtml(text.empty() ? kDash : std::string_view(text));
}

// Bytes of the text of a piece of HTML, without its tags.
std::size_t VisibleLength(std::string_view html) {
  std::size_t length = 0;
  bool in_tag = false;
  for (const char c : html) {
    if (c == '<') in_tag = true;
    length += in_tag ? 0 : 1;
    if (c == '>') in_tag = false;
  }
  return length;
}

// A string of digits, such as a number that a record gives in full or in hexadecimal.
bool LooksNumeric(const std::string& text) {
  return text.size() <= 40 && text.find_first_of("0123456789") != std::string::npos &&
         text.find_first_not_of("0123456789+-.eExXpPabcdfABCDF") == std::string::npos &&
         std::string_view("abcdfABCDFeExXpP").find(text[0]) == std::string_view::npos;
}

}  // namespace

std::string BadgeHtml(const Verdict& verdict) {
  const char* css_class = "neutral";
  const char* mark = "\u2013";
  if (verdict.tone == Tone::kGood) {
    css_class = "good";
    mark = "\u2713";
  } else if (verdict.tone == Tone::kCaution) {
    css_class = "caution";
    mark = "\u25D0";
  } else if (verdict.tone == Tone::kBad) {
    css_class = "bad";
    mark = "\u2717";
  }
  return fmt::format(
      "<span class=\"badge {}\"><span class=\"mark\" aria-hidden=\"true\">{}</span> {}</span>",
      css_class, mark, EscapeHtml(verdict.text));
}

std::string ToHtml(const HtmlTable& table) {
  const std::string caption = EscapeHtml(table.caption);
  std::string html = fmt::format(
      "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{0}\">\n"
      "<table><caption><span>{0}</span></caption>\n<thead><tr>",
      caption);
  for (const HtmlTable::Column& column : table.columns) {
    html += fmt::format("<th scope=\"col\"{}>{}</th>", column.numeric ? " class=\"number\"" : "",
                        column.title);
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : table.rows) {
    html += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const bool numeric = i < table.columns.size() && table.columns[i].numeric;
      const char* css_class = numeric                      ? " class=\"number\""
                              : VisibleLength(row[i]) > 40 ? " class=\"long\""
                                                           : "";
      if (i == 0) {
        html += fmt::format("<th scope=\"row\"{}>{}</th>", css_class, row[i]);
      } else {
        html += fmt::format("<td{}>{}</td>", css_class, row[i]);
      }
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

bool IsNumericColumn(const Json& rows, std::size_t index) {
  bool any = false;
  for (const Json& row : rows) {
    if (!row.is_array() || index >= row.size() || row[index].is_null()) continue;
    const Json& cell = row[index];
    const bool numeric =
        NumberOf(cell) || (cell.is_string() && LooksNumeric(cell.get_ref<const std::string&>()));
    if (!numeric) return false;
    any = true;
  }
  return any;
}

std::string RecordTableHtml(const Json& table, const std::string& caption) {
  const std::string title = TextOf(Field(table, "title"));
  HtmlTable html{title.empty() ? caption : title, {}, {}};
  const Json& rows = Items(table, "rows");
  const Json& columns = Items(table, "columns");
  std::size_t width = columns.size();
  for (const Json& row : rows) {
    if (row.is_array()) width = std::max(width, row.size());
  }
  if (width == 0)
    return ParagraphHtml("The table \u201C" + html.caption + "\u201D is empty.", "note");
  for (std::size_t i = 0; i < width; ++i) {
    html.columns.push_back(
        {i < columns.size() ? CellHtml(columns[i]) : std::string(), IsNumericColumn(rows, i)});
  }
  for (const Json& row : rows) {
    std::vector<std::string> cells;
    for (std::size_t i = 0; i < width; ++i) {
      cells.push_back(row.is_array() && i < row.size() ? CellHtml(row[i]) : std::string(kDash));
    }
    html.rows.push_back(std::move(cells));
  }
  return ToHtml(html);
}

std::string FactsHtml(const std::vector<std::pair<std::string, std::string>>& facts) {
  std::string html;
  for (const auto& [term, text] : facts) {
    if (text.empty()) continue;
    html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", EscapeHtml(term), text);
  }
  return html.empty() ? "" : "<dl class=\"facts\">\n" + html + "</dl>\n";
}

std::string ParagraphHtml(std::string_view text, std::string_view css_class) {
  if (text.empty()) return "";
  const std::string attribute =
      css_class.empty() ? "" : fmt::format(" class=\"{}\"", EscapeHtml(css_class));
  return fmt::format("<p{}>{}</p>\n", attribute, EscapeHtml(text));
}

std::string CodeBlockHtml(std::string_view code) {
  return fmt::format("<pre tabindex=\"0\"><code>{}</code></pre>\n", EscapeHtml(code));
}

std::string ListHtml(const Json& texts, std::string_view heading) {
  if (!texts.is_array() || texts.empty()) return "";
  std::string html = fmt::format("<h4>{}</h4>\n<ul>\n", EscapeHtml(heading));
  for (const Json& text : texts) html += fmt::format("<li>{}</li>\n", CellHtml(text));
  return html + "</ul>\n";
}

}  // namespace attest::reports

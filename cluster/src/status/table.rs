//! A table that is shown as text and on the page.

use std::fmt::Write as _;

/// Rows of text under a title.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub(super) title: &'static str,
    heads: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(title: &'static str, heads: &'static [&'static str]) -> Self {
        Self { title, heads, rows: Vec::new() }
    }

    pub(super) fn push<const N: usize>(&mut self, row: [String; N]) {
        self.rows.push(row.into());
    }

    /// Columns under each other, the first to the left and the others to the right.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}:{}\n", self.title, if self.rows.is_empty() { " none" } else { "" });
        if self.rows.is_empty() {
            return text;
        }
        let heads: Vec<String> = self.heads.iter().map(|head| (*head).to_owned()).collect();
        let lines = || std::iter::once(&heads).chain(&self.rows);
        let widths: Vec<usize> = (0..heads.len())
            .map(|column| lines().map(|line| line[column].chars().count()).max().unwrap_or(0))
            .collect();
        for line in lines() {
            let _ = write!(text, "  {:<width$}", line[0], width = widths[0]);
            for (cell, width) in line.iter().zip(&widths).skip(1) {
                let _ = write!(text, "  {cell:>width$}");
            }
            text.push('\n');
        }
        text
    }

    /// An element of the page. Names come from other nodes: they enter as text, never as markup.
    pub(super) fn html(&self) -> String {
        let mut html = format!("<section><h2>{}</h2><div class=\"table\"><table><thead><tr>", self.title);
        let class = |column: usize| if column == 0 { " class=\"left\"" } else { "" };
        for (column, head) in self.heads.iter().enumerate() {
            let _ = write!(html, "<th scope=\"col\"{}>{head}</th>", class(column));
        }
        html.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            html.push_str("<tr>");
            for (column, cell) in row.iter().enumerate() {
                let _ = write!(html, "<td{}>{}</td>", class(column), escape(cell));
            }
            html.push_str("</tr>");
        }
        if self.rows.is_empty() {
            let _ =
                write!(html, "<tr><td class=\"left quiet\" colspan=\"{}\">none</td></tr>", self.heads.len());
        }
        html.push_str("</tbody></table></div></section>\n");
        html
    }
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_outside_enter_the_page_as_text() {
        let mut table = Table::new("Nodes", &["node", "state"]);
        table.push(["<script>alert(1)</script>&\"".into(), "live".into()]);
        let html = table.html();
        assert!(!html.contains("<script>"), "{html}");
        assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;"), "{html}");
    }

    #[test]
    fn columns_stand_under_each_other() {
        let mut table = Table::new("Nodes", &["node", "ops"]);
        assert_eq!(table.text(), "Nodes: none\n");
        table.push(["a".into(), "12345".into()]);
        assert_eq!(table.text(), "Nodes:\n  node    ops\n  a     12345\n");
    }
}

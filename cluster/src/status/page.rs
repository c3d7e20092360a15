//! The status as one self-contained HTML page: the tables, without a script.
//!
//! The page loads nothing, and its content security policy forbids it to.

use super::Status;
use super::table::escape;
use std::time::Duration;

const PAGE: &str = include_str!("page.html");
/// The look of the project's other pages.
const STYLE: &str = include_str!("../../../report/src/html/page.css");

impl Status {
    /// The page. A browser loads it again each `again`, if it is written again.
    pub fn html(&self, again: Option<Duration>) -> String {
        let title = "Cluster · Mainspring";
        let refresh = again.map_or_else(String::new, |again| {
            format!("<meta http-equiv=\"refresh\" content=\"{}\">\n", again.as_secs().max(1))
        });
        let tables: String = self.tables.iter().map(super::Table::html).collect();
        let (mut html, mut rest) = (String::new(), PAGE);
        // Only the template is searched, never what has been filled in.
        while let Some((before, (slot, after))) =
            rest.split_once("{{").and_then(|(before, rest)| Some((before, rest.split_once("}}")?)))
        {
            html.push_str(before);
            match slot {
                "title" => html.push_str(title),
                "refresh" => html.push_str(&refresh),
                "style" => html.push_str(STYLE),
                "facts" => html.push_str(&escape(&self.facts())),
                "tables" => html.push_str(&tables),
                unknown => unreachable!("page.html names the slot {unknown:?}, which nothing fills"),
            }
            rest = after;
        }
        html.push_str(rest);
        html
    }
}

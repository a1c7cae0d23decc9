//! Lists that a cloud sends page by page.

use std::collections::HashSet;

use crate::{code::Code, error::DriverError};

/// More VMs than any class has. Bounds the memory of a list.
const MOST_ITEMS: usize = 50_000;
/// Bounds the time of a list whose pages are empty.
const MOST_PAGES: usize = 1_000;

/// The pages of one list so far. A part of a list never passes for all of it.
pub struct PageCollector<T> {
    what: String,
    items: Vec<T>,
    seen: HashSet<String>,
    next: Option<String>,
}

impl<T> PageCollector<T> {
    /// Before the first page. `what` names the listed resources.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), items: Vec::new(), seen: HashSet::new(), next: None }
    }

    /// The token of the next page; `None` for the first.
    pub fn token(&self) -> Option<&str> {
        self.next.as_deref()
    }

    /// Adds a page with the token of the next one. True if it was the last.
    ///
    /// # Errors
    /// [`Code::Unavailable`]: the pages go in a circle, or are too many.
    pub fn add(&mut self, items: Vec<T>, next: Option<String>) -> Result<bool, DriverError> {
        self.items.extend(items);
        if self.items.len() > MOST_ITEMS {
            return self.refuse(format!("the list has more than {MOST_ITEMS} entries"));
        }
        let Some(next) = next.filter(|next| !next.is_empty()) else { return Ok(true) };
        if self.seen.len() >= MOST_PAGES {
            return self.refuse(format!("the list has more than {MOST_PAGES} pages"));
        }
        if !self.seen.insert(next.clone()) {
            return self.refuse("the next page was there before".to_owned());
        }
        self.next = Some(next);
        Ok(false)
    }

    /// All items, after the last page.
    pub fn into_items(self) -> Vec<T> {
        self.items
    }

    fn refuse<R>(&self, why: String) -> Result<R, DriverError> {
        Err(DriverError::new(Code::Unavailable, format!("{} failed: {why}", self.what)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// Adds pages that have one entry and these tokens, until one is the last or fails.
    fn listed(tokens: impl IntoIterator<Item = Option<String>>) -> Result<usize, String> {
        let mut pages = PageCollector::new("a list");
        for token in tokens {
            if pages.add(vec![()], token).map_err(|error| error.message)? {
                break;
            }
        }
        Ok(pages.into_items().len())
    }

    #[rstest]
    #[case::one_page(&[""], Ok(1))]
    #[case::three(&["a", "b", ""], Ok(3))]
    #[case::the_same(&["a", "a"], Err("the next page was there before"))]
    #[case::circle(&["a", "b", "a"], Err("the next page was there before"))]
    fn pages_end_or_fail(#[case] tokens: &[&str], #[case] expected: Result<usize, &str>) {
        let found = listed(tokens.iter().map(|token| Some((*token).to_owned())));
        assert_eq!(found, expected.map_err(|why| format!("a list failed: {why}")));
    }

    #[test]
    fn pages_without_end_fail() {
        let error = listed((0..).map(|number: u32| Some(number.to_string()))).unwrap_err();
        assert_eq!(error, "a list failed: the list has more than 1000 pages");
        let mut pages = PageCollector::new("a list");
        let error = pages.add(vec![(); MOST_ITEMS + 1], None).unwrap_err();
        assert_eq!(error.message, "a list failed: the list has more than 50000 entries");
    }
}

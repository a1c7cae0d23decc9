//! The parameters of a request.

/// The parameters of a request. There is no `Debug`, because of the user data.
#[derive(Clone, Default)]
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn add(&mut self, name: &str, value: impl ToString) {
        self.0.push((name.to_owned(), value.to_string()));
    }

    pub fn add_some(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    /// Adds a tag. Numbers begin with 1.
    pub fn add_tag(&mut self, number: u32, key: &str, value: &str) {
        self.add(&format!("Tag.{number}.Key"), key);
        self.add(&format!("Tag.{number}.Value"), value);
    }

    /// The same parameters and one more.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.add(name, value);
        self
    }

    /// Names and values.
    pub fn pairs(&self) -> Vec<(&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }
}

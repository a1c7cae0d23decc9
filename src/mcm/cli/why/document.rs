//! The answer as JSON. Fields are only ever added: docs/reference/explanation.schema.json is its schema.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use mcm_insight::story::{ManagerLease, ObjectAnswer};

/// Answers about objects.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "Explanation")]
pub(super) struct ExplanationDocument<'a> {
    /// `cli.mcm/v1`.
    pub api_version: &'static str,
    /// `Explanation`.
    pub kind: &'static str,
    /// When it was made.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub at: Timestamp,
    /// The object, or everything that is not settled.
    pub objects: &'a [ObjectAnswer],
    /// The managers, as their Leases show them.
    pub managers: &'a [ManagerLease],
    /// The managers that were asked and answered.
    pub asked: &'a [String],
    /// Facts that the answer could not take into account.
    pub notes: &'a [String],
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::document::tests::{fits, published};
    use mcm_insight::{plan::answer::DOCUMENT_VERSION, story::MACHINE, testing::blocked_pool};

    #[test]
    fn the_schema_is_published_and_an_answer_fits_it() {
        published::<ExplanationDocument<'_>>("explanation");
        let facts = blocked_pool();
        let answers: Vec<ObjectAnswer> =
            facts.names(MACHINE).map(|name| facts.answer(&facts.subject(MACHINE, name))).collect();
        assert!(answers.iter().any(|answer| !answer.waits.is_empty()));
        let document = ExplanationDocument {
            api_version: DOCUMENT_VERSION,
            kind: "Explanation",
            at: Timestamp::UNIX_EPOCH,
            objects: &answers,
            managers: &[],
            asked: &[],
            notes: &[],
        };
        fits::<ExplanationDocument<'_>>(&serde_json::to_value(&document).unwrap());
    }
}

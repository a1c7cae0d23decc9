//! Since when the control cluster does not answer, while a command shows its caches.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::timeout;

use crate::{
    manager::ManagerLease,
    read_only::{ReadOnly, RoleLease},
    reader,
};

/// Time for a read of the Leases.
const PATIENCE: Duration = Duration::from_secs(2);

/// The managers, as last read, and when the API server last answered.
pub struct ServerAnswers {
    /// The managers; none if their Leases cannot be read.
    pub managers: Vec<ManagerLease>,
    answered: Timestamp,
    is_silent: bool,
}

impl ServerAnswers {
    /// Reads the Leases for the first time.
    pub async fn first(cell: &ReadOnly) -> Self {
        let mut answers = Self { managers: Vec::new(), answered: cell.clock.now(), is_silent: false };
        answers.read(cell).await;
        answers
    }

    /// Reads the Leases again.
    pub async fn read(&mut self, cell: &ReadOnly) {
        let answer = timeout(PATIENCE, cell.leaderships()).await.ok();
        self.note(answer, cell.clock.now());
    }

    /// Notes the answer to a read at a time; `None` without one. A refusal is an answer.
    fn note(&mut self, answer: Option<anyhow::Result<Vec<RoleLease>>>, now: Timestamp) {
        let is_answer = |error: &anyhow::Error| matches!(error.downcast_ref(), Some(kube::Error::Api(_)));
        self.is_silent = match &answer {
            None => true,
            Some(answer) => answer.as_ref().is_err_and(|error| !is_answer(error)),
        };
        if self.is_silent {
            // Their age is not that of their last renewal any more.
            self.managers.clear();
            return;
        }
        self.answered = now;
        let leases = answer.and_then(Result::ok).unwrap_or_default();
        self.managers = leases.iter().map(reader::manager).collect();
    }

    /// Since when the API server does not answer; `None` if it does.
    pub fn silent_since(&self) -> Option<Timestamp> {
        self.is_silent.then_some(self.answered)
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;
    use crate::testing::at;

    #[test]
    fn an_api_server_is_silent_until_it_answers_or_refuses() {
        let mut answers = ServerAnswers { managers: Vec::new(), answered: at(1), is_silent: false };
        assert_eq!(answers.silent_since(), None);
        answers.note(None, at(5));
        answers.note(Some(Err(anyhow::anyhow!("connection refused"))), at(9));
        assert_eq!(answers.silent_since(), Some(at(1)));
        answers.note(Some(Ok(Vec::new())), at(20));
        assert_eq!(answers.silent_since(), None);
        answers.note(None, at(25));
        assert_eq!(answers.silent_since(), Some(at(20)));
        let refusal = Status { code: 403, ..Status::default() };
        answers.note(Some(Err(anyhow::Error::from(kube::Error::Api(refusal.boxed())).context("read Lease"))), at(30));
        assert_eq!(answers.silent_since(), None, "a refusal is an answer");
    }
}

//! The prerequisites of a creation: class, Secrets and a bootstrap token.

use jiff::{SignedDuration, Timestamp};

use super::super::{
    Action, BootstrapToken, MachinePolicy, Snapshot,
    policy::after,
    status, token,
    views::{ClassView, SecretView, TokenView},
};
use crate::object::finalizer;
use mcm_api::{
    labels,
    machine::{OperationState, OperationType},
    reasons::EventReason,
};
use mcm_driver::DriverCapabilities;
use mcm_rules::plan::{Event, Plan, WaitKind};

/// Polling period for changes that no watch reports.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// The capabilities of the class's driver; `None` with a wait if the class cannot be used.
pub(super) fn usable_class(plan: &mut Plan<Action>, snapshot: &Snapshot) -> Option<DriverCapabilities> {
    let name = &snapshot.machine.spec.class.name;
    match &snapshot.class {
        ClassView::Unknown => {
            plan.wait(WaitKind::ClassUnknown, format!("the MachineClass {name} to become readable"), None);
        }
        ClassView::Missing => {
            wait_visibly(
                plan,
                snapshot,
                WaitKind::Class,
                &format!("the MachineClass {name}, which does not exist"),
                None,
            );
        }
        ClassView::Unserved(class) => {
            let what = format!("a driver for the provider {:?} of the MachineClass {name}", class.provider);
            wait_visibly(plan, snapshot, WaitKind::Class, &what, None);
        }
        ClassView::Present { class, .. } if !finalizer::has(&class.metadata, labels::FINALIZER) => {
            let until = after(snapshot.now, LOOK_AGAIN);
            plan.wait(WaitKind::Class, format!("the MachineClass {name} to get its finalizer"), Some(until));
        }
        ClassView::Present { class, driver } => match class.flaws().into_iter().next() {
            Some(flaw) => wait_visibly(
                plan,
                snapshot,
                WaitKind::Class,
                &format!("the MachineClass {name} to be corrected: {flaw}"),
                None,
            ),
            None => return Some(*driver),
        },
    }
    None
}

/// Waits for something that a user has to correct, and reports it in the status and an event.
pub(in super::super) fn wait_visibly(
    plan: &mut Plan<Action>,
    snapshot: &Snapshot,
    kind: WaitKind,
    what: &str,
    until: Option<Timestamp>,
) {
    let (stored, now) = (status::stored(&snapshot.machine), snapshot.now);
    let text = format!("Waiting for {what}");
    let mut next = stored.clone();
    next.last_operation = status::operation(OperationType::Create, OperationState::Processing, text.as_str(), now);
    if status::is_news(&stored, &next, now) {
        let event = Event::warning(EventReason::Waiting, text);
        plan.then_recording(Action::WriteStatus(Box::new(next)), "the status shows what the creation waits for", event);
    }
    plan.wait(kind, what, until);
}

/// The Secrets were read, and all that the class names exist. Otherwise reads them or waits. No driver is called
/// with a part of them.
pub(super) fn is_secret_ready(plan: &mut Plan<Action>, snapshot: &Snapshot) -> bool {
    match &snapshot.learned.secret {
        SecretView::NotRead => {
            plan.then(Action::ReadSecret, "the driver needs credentials and user data");
        }
        SecretView::Failed(error) => {
            let again = Some(after(snapshot.now, LOOK_AGAIN));
            wait_visibly(
                plan,
                snapshot,
                WaitKind::Secret,
                &format!("the Secrets of the class to become readable: {error}"),
                again,
            );
        }
        SecretView::Read(facts) if facts.missing.is_empty() => return true,
        SecretView::Read(facts) => {
            wait_visibly(plan, snapshot, WaitKind::Secret, &facts.missing.join(", "), None);
        }
    }
    false
}

/// The user data is known. Otherwise waits.
pub(super) fn is_user_data_ready(plan: &mut Plan<Action>, snapshot: &Snapshot) -> bool {
    let SecretView::Read(facts) = &snapshot.learned.secret else { return false };
    if !facts.has_user_data {
        let what = facts.missing_user_data.as_deref().unwrap_or("the key userData in the Secrets of the class");
        wait_visibly(plan, snapshot, WaitKind::Secret, what, None);
    }
    facts.has_user_data
}

/// The bootstrap token exists, or the user data needs no token. Otherwise creates it or waits.
pub(super) fn is_token_ready(plan: &mut Plan<Action>, snapshot: &Snapshot, policy: &MachinePolicy) -> bool {
    let is_wanted = matches!(&snapshot.learned.secret, SecretView::Read(facts) if facts.wants_token);
    if !is_wanted || !snapshot.has_target() {
        return true;
    }
    if snapshot.learned.token == TokenView::Ensured {
        return true;
    }
    match snapshot.memory.token_failure() {
        Some(failure) if snapshot.now < failure.retry_at() => {
            let what = format!("a bootstrap token: {}", failure.message);
            wait_visibly(plan, snapshot, WaitKind::BootstrapToken, &what, Some(failure.retry_at()));
        }
        _ => {
            let timeout = policy.creation_timeout_of(&snapshot.machine).as_signed();
            let token = BootstrapToken {
                id: token::id_of(&snapshot.machine),
                expiration: after(snapshot.now, timeout),
                auth_extra_groups: policy.bootstrap_token_groups.clone(),
                description: format!("Lets the machine {} join the cluster", snapshot.name()),
            };
            plan.then(Action::EnsureBootstrapToken(token), "the VM joins with its own token");
        }
    }
    false
}

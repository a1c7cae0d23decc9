use jiff::Timestamp;

use super::{Action, Core, Snapshot, plan::plan};

/// S2: whoever installs core otherwise than by clusterctl is seen half a minute later.
#[test]
fn s2_each_reconcile_looks_once_and_then_waits() {
    let now = Timestamp::from_second(100).unwrap();
    let first = plan(&Snapshot { has_looked: false, has_failed: true, now });
    assert_eq!(first.steps.iter().map(|step| &step.action).collect::<Vec<_>>(), [&Action::Look]);
    let then = plan(&Snapshot { has_looked: true, has_failed: false, now });
    assert!(then.steps.is_empty());
    assert_eq!(then.requeue_at(), Timestamp::from_second(130).ok());
    let failed = plan(&Snapshot { has_looked: true, has_failed: true, now });
    assert_eq!(failed.requeue_at(), Timestamp::from_second(105).ok());
}

#[test]
fn handlers_hear_of_another_answer_only() {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };
    let (core, heard) = (Core::default(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&heard);
    core.on_change(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(core.asked(), None);
    for (answer, expected) in [(Ok(None), 1), (Ok(None), 1), (Err("x".to_owned()), 2), (Ok(Some("l".to_owned())), 3)] {
        core.heard(answer.clone());
        assert_eq!((core.asked(), heard.load(Ordering::Relaxed)), (Some(answer), expected));
    }
}

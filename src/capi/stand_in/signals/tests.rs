use super::CoreCheckState;

#[test]
fn handlers_are_called_only_for_a_different_answer() {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };
    let (core, heard) = (CoreCheckState::default(), Arc::new(AtomicUsize::new(0)));
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

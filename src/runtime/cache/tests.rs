use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher::Event;

use super::*;

fn object(name: &str, uid: &str, version: u64) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some("n".into()),
            uid: Some(uid.into()),
            resource_version: Some(version.to_string()),
            labels: Some([("colour".to_owned(), format!("v{version}"))].into()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

fn guard(object: ConfigMap) -> GuardedObject<ConfigMap> {
    GuardedObject::Readable(object)
}

const COLOUR: &CacheIndex<ConfigMap, String> = &CacheIndex::new("colour", |object| {
    object.metadata.labels.iter().flat_map(|labels| labels.values().cloned()).collect()
});

fn cache() -> Arc<ObjectCache<ConfigMap>> {
    ObjectCache::new(&[COLOUR], |_| {})
}

fn version(cache: &ObjectCache<ConfigMap>, name: &str) -> Option<String> {
    cache.get(&Key::new("n", name)).and_then(|object| object.metadata.resource_version.clone())
}

#[test]
fn a_write_is_read_at_once_and_an_older_watch_event_does_not_undo_it() {
    let cache = cache();
    cache.observe(Event::Apply(guard(object("a", "1", 5))));
    cache.wrote(object("a", "1", 7));
    cache.observe(Event::Apply(guard(object("a", "1", 6))));
    assert_eq!(version(&cache, "a").as_deref(), Some("7"));
    assert_eq!(cache.by(COLOUR, "v7").len(), 1);
    assert!(cache.by(COLOUR, "v5").is_empty(), "the index follows");
}

#[test]
fn a_late_event_does_not_restore_an_object_that_a_write_removed() {
    let cache = cache();
    cache.observe(Event::Apply(guard(object("a", "1", 5))));
    cache.removed(&Key::new("n", "a"), "1");
    cache.observe(Event::Apply(guard(object("a", "1", 6))));
    assert_eq!(version(&cache, "a"), None);
    cache.observe(Event::Delete(guard(object("a", "1", 7))));
    cache.observe(Event::Apply(guard(object("a", "2", 8))));
    assert_eq!(version(&cache, "a").as_deref(), Some("8"), "another object of that name is another object");
}

#[test]
fn a_late_answer_does_not_revive_a_deleted_object() {
    let cache = cache();
    cache.observe(Event::Apply(guard(object("a", "1", 5))));
    cache.observe(Event::Delete(guard(object("a", "1", 7))));
    cache.wrote(object("a", "1", 6));
    assert_eq!(version(&cache, "a"), None);

    cache.observe(Event::Apply(guard(object("b", "2", 8))));
    cache.observe(Event::Init);
    cache.removed(&Key::new("n", "b"), "2");
    cache.observe(Event::InitApply(guard(object("b", "2", 8))));
    cache.observe(Event::InitDone);
    assert_eq!(version(&cache, "b"), None, "nor does a listing that began before");
}

#[test]
fn a_listing_removes_what_it_lacks_but_not_what_was_written_meanwhile() {
    let cache = cache();
    cache.observe(Event::Apply(guard(object("old", "1", 5))));
    cache.wrote(object("lost", "3", 6));
    cache.observe(Event::Init);
    cache.wrote(object("fresh", "2", 9));
    cache.observe(Event::InitDone);
    assert_eq!(version(&cache, "old"), None);
    assert_eq!(version(&cache, "lost"), None, "written before the listing began and not in it: it is gone");
    assert_eq!(version(&cache, "fresh").as_deref(), Some("9"));
    assert!(cache.is_synced());
}

#[test]
fn a_list_has_no_second_copy_of_an_object_that_is_stored() {
    let (cache, key) = (cache(), Key::new("n", "a"));
    cache.observe(Event::Apply(guard(object("a", "1", 5))));
    let held = cache.get(&key).unwrap();
    let owners = Arc::strong_count(&held);
    cache.observe(Event::Init);
    cache.observe(Event::InitApply(guard(object("a", "1", 5))));
    assert_eq!(Arc::strong_count(&held), owners + 1);
    cache.observe(Event::InitDone);
    assert!(Arc::ptr_eq(&held, &cache.get(&key).unwrap()));
    list(&cache, [object("a", "1", 6)]);
    assert_eq!(version(&cache, "a").as_deref(), Some("6"));
}

#[test]
fn a_change_has_no_copy_of_the_metadata_of_its_object() {
    let cache = cache();
    let changes = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = Arc::clone(&changes);
    cache.on_change(move |change| {
        let object = change.new.as_ref().or(change.old.as_ref()).unwrap();
        let version = change.meta.resource_version.clone().unwrap();
        seen.lock().push((std::ptr::eq(&*change.meta, object.meta()), version));
    });
    list(&cache, [object("a", "1", 5)]);
    list(&cache, [object("b", "2", 6)]);
    cache.observe(Event::Delete(guard(object("b", "2", 7))));
    let expected = [(true, "5"), (true, "5"), (true, "6"), (false, "7")];
    assert_eq!(*changes.lock(), expected.map(|(is_shared, version)| (is_shared, version.to_owned())));
}

#[test]
fn objects_read_during_a_list_stay_and_their_events_count() {
    let cache = cache();
    cache.observe(Event::Init);
    cache.store.write().read(guard(object("fresh", "2", 9)));
    cache.observe(Event::InitDone);
    assert_eq!(version(&cache, "fresh").as_deref(), Some("9"));
    assert!(cache.is_in_doubt(), "it is newer than the list, or it is gone");
    cache.observe(Event::Apply(guard(object("fresh", "2", 9))));
    assert!(!cache.is_in_doubt());
    cache.observe(Event::Apply(guard(object("fresh", "2", 10))));
    assert_eq!(version(&cache, "fresh").as_deref(), Some("10"));
}

#[test]
fn a_delete_of_a_former_object_leaves_its_successor() {
    let cache = cache();
    cache.observe(Event::Apply(guard(object("a", "2", 8))));
    cache.observe(Event::Delete(guard(object("a", "1", 7))));
    assert_eq!(version(&cache, "a").as_deref(), Some("8"));
}

#[test]
fn an_unreadable_object_exists_without_content() {
    let cache = cache();
    cache.observe(Event::Apply(guard(object("a", "1", 5))));
    let metadata = Box::new(object("a", "1", 6).metadata);
    let broken = GuardedObject::Unreadable { metadata, error: "bad".to_owned() };
    cache.observe(Event::Apply(broken));
    assert_eq!(version(&cache, "a"), None);
    assert_eq!(cache.unreadable().len(), 1);
    cache.observe(Event::Apply(guard(object("a", "1", 7))));
    assert_eq!(cache.unreadable().len(), 0);
}

fn list(cache: &ObjectCache<ConfigMap>, objects: impl IntoIterator<Item = ConfigMap>) {
    cache.observe(Event::Init);
    objects.into_iter().for_each(|object| assert!(cache.observe(Event::InitApply(guard(object)))));
    cache.observe(Event::InitDone);
}

#[test]
fn an_object_that_a_relist_dropped_is_not_revived_by_a_late_answer() {
    let cache = cache();
    cache.observe(Event::Apply(guard(object("a", "1", 5))));
    list(&cache, []);
    cache.wrote(object("a", "1", 6));
    assert_eq!(version(&cache, "a"), None);
}

#[test]
fn a_relist_takes_back_what_an_etcd_restore_undid() {
    let cache = cache();
    list(&cache, [object("changed", "1", 50), object("deleted", "2", 51)]);
    cache.observe(Event::Delete(guard(object("deleted", "2", 52))));
    let changes = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let seen = Arc::clone(&changes);
    cache.on_change(move |change| seen.lock().push(change.key.name.clone()));
    list(&cache, [object("changed", "1", 7), object("deleted", "2", 8)]);
    assert_eq!(version(&cache, "changed").as_deref(), Some("7"), "the lower version is the truth");
    assert_eq!(version(&cache, "deleted").as_deref(), Some("8"), "it exists again");
    assert_eq!(*changes.lock(), ["changed", "deleted"]);
    list(&cache, [object("changed", "1", 7), object("deleted", "2", 8)]);
    assert_eq!(changes.lock().len(), 2, "what is as it was is no change");
}

#[test]
fn writes_during_a_list_are_newer_than_the_list() {
    let cache = cache();
    list(&cache, [object("a", "1", 5), object("b", "2", 5)]);
    cache.observe(Event::Init);
    cache.observe(Event::InitApply(guard(object("a", "1", 5))));
    cache.observe(Event::InitApply(guard(object("b", "2", 5))));
    cache.wrote(object("a", "1", 6));
    cache.removed(&Key::new("n", "b"), "2");
    cache.observe(Event::InitDone);
    assert_eq!(version(&cache, "a").as_deref(), Some("6"));
    assert_eq!(version(&cache, "b"), None);
}

#[test]
fn an_older_incarnation_does_not_replace_a_newer_one() {
    let cache = cache();
    cache.wrote(object("a", "2", 9));
    cache.observe(Event::Apply(guard(object("a", "1", 8))));
    assert_eq!(cache.get(&Key::new("n", "a")).unwrap().metadata.uid.as_deref(), Some("2"));
}

#[test]
fn an_answer_to_a_delete_is_the_end_only_without_finalizers_and_grace() {
    let deleted = |finalizers: &[&str], grace| {
        let mut object = object("a", "1", 6);
        object.metadata.deletion_timestamp = Some(serde_json::from_str("\"2026-01-01T00:00:00Z\"").unwrap());
        object.metadata.finalizers = Some(finalizers.iter().map(|&name| name.to_owned()).collect());
        object.metadata.deletion_grace_period_seconds = grace;
        object
    };
    for (answer, is_kept) in [
        (deleted(&[], None), false),
        (deleted(&[], Some(0)), false),
        (deleted(&[], Some(30)), true),
        (deleted(&["x"], Some(0)), true),
    ] {
        let cache = cache();
        cache.observe(Event::Apply(guard(object("a", "1", 5))));
        cache.wrote(answer);
        assert_eq!(version(&cache, "a").is_some(), is_kept);
    }
}

#[test]
fn an_index_follows_removals_and_can_be_read_in_place() {
    let cache = cache();
    cache.observe(Event::Apply(guard(object("b", "2", 5))));
    cache.observe(Event::Apply(guard(object("a", "1", 5))));
    let names = |objects: &[Arc<ConfigMap>]| objects.iter().filter_map(|o| o.metadata.name.clone()).collect::<Vec<_>>();
    assert_eq!(cache.with(COLOUR, "v5", names), ["a", "b"], "by key");
    cache.removed(&Key::new("n", "a"), "1");
    assert_eq!(cache.with(COLOUR, "v5", names), ["b"]);
    assert_eq!(cache.len(), 1);
}

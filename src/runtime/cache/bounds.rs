//! Bounds of a cache. A target cluster may belong to a user who tries to exhaust the memory of this process: with lists and
//! watches that add objects without end, or with pages that have no end.

use std::{
    error::Error,
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use super::CacheableKind;
use crate::{body::TooLarge, guard::GuardedObject};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Bounds of the content of a cache, and of a list that fills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheBounds {
    objects: usize,
    /// Estimated memory of all objects.
    memory: u64,
    /// Bytes that the API server may send for one list. Most fields of a Node are not stored.
    sent: u64,
}

impl CacheBounds {
    /// Estimated memory of one object, on average. A Node with 30 labels and 8 conditions has less.
    const OF_OBJECT: u64 = 8 * KIB;
    /// Bytes sent for one object, on average. A Node with 50 images and its managed fields has less.
    const SENT_FOR_OBJECT: u64 = 24 * KIB;
    /// The least that a page counts, so that a list of empty pages ends.
    const LEAST_OF_PAGE: u64 = 64 * KIB;

    /// So many objects of average size.
    pub const fn for_objects(objects: usize) -> Self {
        let count = objects as u64;
        Self {
            objects,
            memory: count.saturating_mul(Self::OF_OBJECT),
            // Room for one page of a small bound.
            sent: count.saturating_mul(Self::SENT_FOR_OBJECT).saturating_add(16 * MIB),
        }
    }

    /// The same memory for ten times as many objects.
    pub const fn for_small_objects(self) -> Self {
        Self { objects: self.objects.saturating_mul(10), ..self }
    }

    /// The most pages of a list, when each has `size` objects.
    pub(super) const fn pages(self, size: u32) -> usize {
        (self.objects / (size as usize)).saturating_mul(2).saturating_add(10)
    }
}

/// The objects exceed a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheExcess {
    /// Their number.
    #[error("there are more than {0} objects; remove some of them or raise --max-nodes-per-target")]
    Objects(usize),
    /// Their size.
    #[error("the objects need more than {} MiB; remove some of their fields or raise --max-nodes-per-target", .0.div_ceil(MIB))]
    Memory(u64),
    /// The size of a list.
    #[error("the API server sent more than {} MiB in one list; check the address of the API server", .0.div_ceil(MIB))]
    Sent(u64),
    /// The number of pages of a list.
    #[error("the API server sent more than {0} pages in one list; check the address of the API server")]
    Pages(usize),
}

/// Number and estimated memory of some objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CacheLoad {
    pub objects: usize,
    pub memory: u64,
}

impl CacheLoad {
    pub fn add(&mut self, memory: u64) {
        self.objects += 1;
        self.memory = self.memory.saturating_add(memory);
    }

    pub fn remove(&mut self, memory: u64) {
        self.objects = self.objects.saturating_sub(1);
        self.memory = self.memory.saturating_sub(memory);
    }
}

/// The bounds of a cache, and how its objects are measured.
pub(super) struct BoundsMeter<K> {
    bounds: CacheBounds,
    weigh: fn(&K) -> u64,
}

impl<K: CacheableKind> BoundsMeter<K> {
    pub fn new(bounds: CacheBounds) -> Self
    where
        K: Serialize,
    {
        Self { bounds, weigh: |object| memory(object) }
    }

    pub fn bounds(&self) -> CacheBounds {
        self.bounds
    }

    pub fn weigh(&self, object: &K) -> u64 {
        (self.weigh)(object)
    }

    /// The memory of an object, or of what is stored of one that cannot be decoded.
    pub fn weigh_any(&self, object: &GuardedObject<K>) -> u64 {
        match object {
            GuardedObject::Readable(object) => self.weigh(object),
            GuardedObject::Unreadable { metadata, error } => memory_of_unreadable(metadata, error),
        }
    }

    pub fn excess(&self, load: CacheLoad) -> Option<CacheExcess> {
        let CacheBounds { objects, memory, .. } = self.bounds;
        if load.objects > objects {
            return Some(CacheExcess::Objects(objects));
        }
        (load.memory > memory).then_some(CacheExcess::Memory(memory))
    }
}

/// Estimates the memory of an object, in bytes: the length of its JSON, and for each part in which it is written a share of the
/// pointers, lengths and maps in memory.
pub(super) fn memory(object: &impl Serialize) -> u64 {
    const OF_PART: u64 = 4;
    struct LengthCounter(u64);
    impl io::Write for LengthCounter {
        fn write(&mut self, part: &[u8]) -> io::Result<usize> {
            self.0 = self.0.saturating_add(part.len() as u64 + OF_PART);
            Ok(part.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut length = LengthCounter(0);
    // Writing to a counter does not fail; what cannot be serialized counts as far as it was written.
    let _ = serde_json::to_writer(&mut length, object);
    length.0
}

/// The memory of what is stored of an object that cannot be decoded.
pub(super) fn memory_of_unreadable(meta: &ObjectMeta, error: &str) -> u64 {
    memory(meta).saturating_add(error.len() as u64)
}

/// Bytes that the API server sent for the current list.
#[derive(Debug, Default)]
pub(super) struct ListTally {
    sent: AtomicU64,
    /// 0 without a limit.
    most: AtomicU64,
}

impl ListTally {
    pub fn limit(&self, bounds: CacheBounds) {
        self.most.store(bounds.sent, Ordering::Relaxed);
    }

    /// A list begins.
    pub fn begin(&self) {
        self.sent.store(0, Ordering::Relaxed);
    }

    /// A page begins.
    pub fn page(self: &Arc<Self>) -> Result<PageTally, CacheExcess> {
        self.add(CacheBounds::LEAST_OF_PAGE)?;
        Ok(PageTally { list: Arc::clone(self), free: CacheBounds::LEAST_OF_PAGE })
    }

    fn add(&self, bytes: u64) -> Result<(), CacheExcess> {
        let sent = self.sent.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let most = self.most.load(Ordering::Relaxed);
        if most > 0 && sent > most { Err(CacheExcess::Sent(most)) } else { Ok(()) }
    }
}

/// Bytes of one page.
#[derive(Debug)]
pub(super) struct PageTally {
    list: Arc<ListTally>,
    /// Bytes that are counted already.
    free: u64,
}

impl PageTally {
    pub fn add(&mut self, bytes: usize) -> Result<(), CacheExcess> {
        let bytes = bytes as u64;
        let counted = bytes.min(self.free);
        self.free -= counted;
        self.list.add(bytes - counted)
    }
}

/// The number of objects that a list requests in one page. Pages that are too large are requested again with fewer objects, so
/// that large objects do not keep a cache from being filled.
#[derive(Debug)]
pub(super) struct PageSize(AtomicU32);

impl PageSize {
    const LARGEST: u32 = 500;
    const SMALLEST: u32 = 5;

    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// False if pages cannot be smaller.
    pub fn shrink(&self) -> bool {
        let size = self.get();
        self.0.store((size / 10).max(Self::SMALLEST), Ordering::Relaxed);
        size > Self::SMALLEST
    }
}

impl Default for PageSize {
    fn default() -> Self {
        Self(AtomicU32::new(Self::LARGEST))
    }
}

/// An error because the API server sent too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OverrunError {
    /// In one response.
    Response(TooLarge),
    /// In total.
    Total,
}

impl OverrunError {
    /// The first cause of an error that is one.
    pub fn find(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(cause) = next {
            if let Some(too_large) = cause.downcast_ref::<TooLarge>() {
                return Some(Self::Response(*too_large));
            }
            if cause.is::<CacheExcess>() {
                return Some(Self::Total);
            }
            next = cause.source();
        }
        None
    }

    /// Pages with fewer objects may help.
    pub fn fits_in_smaller_pages(self) -> bool {
        matches!(self, Self::Response(too_large) if too_large.fits_in_smaller_pages())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use mcm_api::node::Node;

    fn node(labels: usize, conditions: usize) -> Node {
        let labels: serde_json::Map<_, _> = (0..labels)
            .map(|at| (format!("topology.example.com/some-label-{at}"), json!("a-value-of-a-label")))
            .collect();
        let condition = json!({"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory",
            "message": "kubelet has sufficient memory available", "lastHeartbeatTime": "2026-01-01T00:00:00Z"});
        serde_json::from_value(json!({
            "metadata": {"name": "ip-10-0-0-1.ec2.internal", "uid": "d3c7a2f0-0000-4000-8000-000000000000", "labels": labels},
            "spec": {"providerID": "aws:///eu-central-1a/i-0123456789abcdef0"},
            "status": {"conditions": vec![condition; conditions], "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
        }))
        .unwrap()
    }

    #[test]
    fn a_node_as_clouds_make_them_is_below_the_average_that_is_allowed() {
        let weight = memory(&node(30, 8));
        assert!((CacheBounds::OF_OBJECT / 2..CacheBounds::OF_OBJECT).contains(&weight), "{weight}");
    }

    #[test]
    fn empty_values_count_for_the_memory_that_they_need() {
        let of_conditions = |count: usize| {
            let node = json!({"metadata": {}, "status": {"conditions": vec![json!({}); count]}});
            memory(&serde_json::from_value::<Node>(node).unwrap())
        };
        let one = (of_conditions(1001) - of_conditions(1)) / 1000;
        let needed = size_of::<k8s_openapi::api::core::v1::NodeCondition>() as u64;
        assert!(one * 2 > needed, "{one} of {needed}");
    }

    #[test]
    fn pages_shrink_to_a_size_at_which_the_largest_objects_fit() {
        let page = PageSize::default();
        let mut sizes = vec![page.get()];
        while page.shrink() {
            sizes.push(page.get());
        }
        assert_eq!(sizes, [500, 50, 5]);
    }

    #[test]
    fn empty_pages_without_end_exceed_the_bytes_of_a_list() {
        let tally = Arc::new(ListTally::default());
        tally.limit(CacheBounds::for_objects(20_000));
        let pages = (0..).take_while(|_| tally.page().is_ok()).count();
        assert_eq!(pages, (20_000 * 24 + 16 * 1024) / 64);
        tally.begin();
        let mut page = tally.page().unwrap();
        let parts = (0..).take_while(|_| page.add(1 << 20).is_ok()).count();
        assert_eq!(parts, (20_000 * 24 + 16 * 1024) / 1024);
    }
}

//! Metrics of objects, computed from caches at each scrape. Several cells may have objects of one kind; a family is
//! exported once for all of them.

use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

use super::TextExposition;
use crate::cache::{CacheableKind, ObjectCache};
use mcm_api::machine::Machine;

/// Objects are exported until this is dropped.
pub(crate) struct ExportGuard(#[expect(dead_code, reason = "kept alive")] Arc<dyn Any + Send + Sync>);

#[derive(Default)]
pub(super) struct ExportRegistry(Mutex<BTreeMap<(TypeId, usize), Box<dyn ObjectExporter>>>);

trait ObjectExporter: Send + Sync {
    fn collect(&self, out: &mut TextExposition);
    fn count(&self) -> usize;
    fn as_any(&mut self) -> &mut dyn Any;
}

struct OfKind<K: CacheableKind> {
    caches: Vec<Weak<Arc<ObjectCache<K>>>>,
    export: fn(&[Arc<K>], &mut TextExposition),
}

impl<K: CacheableKind> ObjectExporter for OfKind<K> {
    fn collect(&self, out: &mut TextExposition) {
        let caches: Vec<_> = self.caches.iter().filter_map(Weak::upgrade).collect();
        if !caches.is_empty() {
            let objects: Vec<Arc<K>> = caches.iter().flat_map(|cache| cache.all()).collect();
            (self.export)(&objects, out);
        }
    }

    fn count(&self) -> usize {
        self.caches.iter().filter_map(Weak::upgrade).map(|cache| cache.len()).sum()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl ExportRegistry {
    pub(super) fn add<K: CacheableKind>(
        &self,
        cache: &Arc<ObjectCache<K>>,
        export: fn(&[Arc<K>], &mut TextExposition),
    ) -> ExportGuard {
        let source = Arc::new(Arc::clone(cache));
        let mut all = self.0.lock();
        let of_kind = all
            .entry((TypeId::of::<K>(), export as usize))
            .or_insert_with(|| Box::new(OfKind::<K> { caches: Vec::new(), export }));
        if let Some(of_kind) = of_kind.as_any().downcast_mut::<OfKind<K>>() {
            of_kind.caches.retain(|cache| cache.strong_count() > 0);
            of_kind.caches.push(Arc::downgrade(&source));
        }
        ExportGuard(source)
    }

    /// The number of exported Machines.
    pub(super) fn machines(&self) -> usize {
        let all = self.0.lock();
        let of_machines = all.iter().filter(|((kind, _), _)| *kind == TypeId::of::<Machine>());
        of_machines.map(|(_, export)| export.count()).max().unwrap_or_default()
    }

    pub(super) fn collect(&self, out: &mut TextExposition) {
        self.0.lock().values().for_each(|export| export.collect(out));
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::metrics::{MetricDesc, MetricsRegistry};

    const COUNT: MetricDesc<0> = MetricDesc::gauge("maps", "Config maps.", []);

    fn count(objects: &[Arc<ConfigMap>], out: &mut TextExposition) {
        out.sample(&COUNT, [], f64::from(u32::try_from(objects.len()).unwrap()));
    }

    fn cache(name: &str) -> Arc<ObjectCache<ConfigMap>> {
        let cache = ObjectCache::<ConfigMap>::new(&[], |_| {});
        let object = serde_json::json!({ "metadata": { "name": name, "uid": name, "resourceVersion": "1" } });
        cache.wrote(serde_json::from_value(object).unwrap());
        cache
    }

    #[test]
    fn a_family_is_printed_once_for_all_cells_and_a_cell_that_ends_leaves_it() {
        let metrics = MetricsRegistry::new();
        let (a, b) = (metrics.export(&cache("a"), count), metrics.export(&cache("b"), count));
        let text = metrics.render();
        assert!(text.contains("\nmaps 2\n"), "{text}");
        assert_eq!(text.matches("# TYPE maps").count(), 1);
        drop(a);
        assert!(metrics.render().contains("\nmaps 1\n"));
        drop(b);
        assert!(!metrics.render().contains("maps"), "a standby exports none");
    }
}

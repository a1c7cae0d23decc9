//! Metrics of caches: age and trust.

use super::{MetricCollector, MetricDesc, TextExposition};
use crate::trust::CacheRegistry;

const AGE: MetricDesc<2> = MetricDesc::gauge(
    "mcm_cache_age_seconds",
    "Seconds since the last message of the API server to a cache.",
    ["kind", "cluster"],
);
const TRUSTED: MetricDesc<2> = MetricDesc::gauge(
    "mcm_cache_trusted",
    "1 if a cache is trusted, 0 if it may be stale, so that a missing object counts as unknown.",
    ["kind", "cluster"],
);

const UNREADABLE: MetricDesc<2> = MetricDesc::gauge(
    "mcm_cache_unreadable_objects",
    "Objects of a cache that cannot be decoded and are left alone. The log and the event Unreadable name them.",
    ["kind", "cluster"],
);

const OVER_LIMIT: MetricDesc<2> = MetricDesc::gauge(
    "mcm_cache_over_limit",
    "1 if the API server sends more than a cache may hold, so that the cache is not trusted, otherwise 0.",
    ["kind", "cluster"],
);

impl MetricCollector for CacheRegistry {
    fn collect(&self, out: &mut TextExposition) {
        for (cluster, cache) in self.all() {
            let kind = cache.plural();
            if let Some(age) = cache.age() {
                out.sample(&AGE, [&kind, &cluster], age.as_secs_f64());
            }
            out.sample(&TRUSTED, [&kind, &cluster], f64::from(u8::from(cache.trust().is_trusted())));
            let unreadable = u32::try_from(cache.unreadable()).unwrap_or(u32::MAX);
            out.sample(&UNREADABLE, [&kind, &cluster], f64::from(unreadable));
            out.sample(&OVER_LIMIT, [&kind, &cluster], f64::from(u8::from(cache.is_over_limit())));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::trust::{CacheNeed, CacheTrust, MonitoredCache};

    struct Silent;

    impl MonitoredCache for Silent {
        fn plural(&self) -> String {
            "nodes".to_owned()
        }

        fn trust(&self) -> CacheTrust {
            CacheTrust::Unknown { why: "not read yet".to_owned() }
        }

        fn age(&self) -> Option<Duration> {
            Some(Duration::from_millis(1500))
        }

        fn unreadable(&self) -> usize {
            3
        }

        fn is_over_limit(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_cache_is_told_of_until_it_is_dropped() {
        let (caches, cache) = (CacheRegistry::default(), Arc::new(Silent));
        caches.add("target", &cache, CacheNeed::Required);
        assert_eq!(caches.problems(), ["nodes of target: not read yet"]);
        let mut out = TextExposition::default();
        caches.collect(&mut out);
        let text = out.finish();
        assert!(text.contains("mcm_cache_age_seconds{kind=\"nodes\",cluster=\"target\"} 1.5\n"), "{text}");
        assert!(text.contains("mcm_cache_trusted{kind=\"nodes\",cluster=\"target\"} 0\n"), "{text}");
        assert!(text.contains("mcm_cache_unreadable_objects{kind=\"nodes\",cluster=\"target\"} 3\n"), "{text}");
        assert!(text.contains("mcm_cache_over_limit{kind=\"nodes\",cluster=\"target\"} 1\n"), "{text}");
        drop(cache);
        assert!(caches.problems().is_empty());
    }
}

//! Equal texts and values of cached objects, once in memory. Thousands of Machines and Nodes differ in few of them.

use std::{
    collections::{BTreeMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::LazyLock,
};

use parking_lot::Mutex;

use mcm_api::sharing::{SharedText, SharedValue};

/// Longest text that is shared, in bytes: the node template in an annotation of each Node has some hundred. Longer ones are rarely
/// equal.
const LONGEST: usize = 4 << 10;
/// Size of all texts from which on those without an owner are dropped, in bytes. By size, because the owner of a target cluster
/// chooses the texts of its Nodes.
const SMALL: usize = 64 << 10;
/// Size of a text besides its bytes: its allocation and its entry.
const OF_TEXT: usize = 48;
/// Groups from which on those without an owner are dropped.
const FEW: usize = 1024;
/// Different values of a group that are known at the same time.
const MOST_VALUES: usize = 16;

static TEXTS: LazyLock<Mutex<TextPool>> = LazyLock::new(Mutex::default);

/// Replaces texts by equal ones of other objects.
pub fn share_texts<'a>(texts: impl IntoIterator<Item = &'a mut SharedText>) {
    let mut pool = TEXTS.lock();
    texts.into_iter().for_each(|text| pool.share(text));
}

#[derive(Default)]
struct TextPool {
    known: HashSet<SharedText>,
    /// Size of the texts, in bytes.
    size: usize,
    sweep_at: usize,
}

impl TextPool {
    fn share(&mut self, text: &mut SharedText) {
        if text.len() > LONGEST {
            return;
        }
        if let Some(known) = self.known.get(text.as_str()) {
            *text = known.clone();
            return;
        }
        if self.size >= self.sweep_at.max(SMALL) {
            self.known.retain(|known| known.owners() > 1);
            self.known.shrink_to(FEW);
            self.size = self.known.iter().map(size_with_entry).sum();
            self.sweep_at = self.size.saturating_mul(2);
        }
        self.size = self.size.saturating_add(size_with_entry(text));
        self.known.insert(text.clone());
    }
}

fn size_with_entry(text: &SharedText) -> usize {
    text.len().saturating_add(OF_TEXT)
}

/// Equal values of one type.
pub struct ValuePool<T>(Mutex<PooledValues<T>>);

struct PooledValues<T> {
    /// By the hash of their group.
    known: BTreeMap<u64, Vec<SharedValue<T>>>,
    sweep_at: usize,
}

impl<T: PartialEq> ValuePool<T> {
    pub const fn new() -> Self {
        Self(Mutex::new(PooledValues { known: BTreeMap::new(), sweep_at: 0 }))
    }

    /// Replaces a value by an equal one of its group, such as the Machines of one class. Values of other groups are not compared.
    pub fn share(&self, group: impl Hash, value: &mut SharedValue<T>) {
        let mut hasher = DefaultHasher::new();
        group.hash(&mut hasher);
        self.0.lock().share(hasher.finish(), value);
    }
}

impl<T: PartialEq> Default for ValuePool<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: PartialEq> PooledValues<T> {
    fn share(&mut self, group: u64, value: &mut SharedValue<T>) {
        if !self.known.contains_key(&group) && self.known.len() >= self.sweep_at.max(FEW) {
            self.known.retain(|_, values| values.iter().any(is_used));
            self.sweep_at = self.known.len().saturating_mul(2);
        }
        let values = self.known.entry(group).or_default();
        if values.iter().any(|known| value.share(known)) {
            return;
        }
        values.retain(is_used);
        if values.len() >= MOST_VALUES {
            values.remove(0);
        }
        values.push(value.clone());
    }
}

/// An object has the value.
fn is_used<T>(value: &SharedValue<T>) -> bool {
    value.owners() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_shared_and_long_ones_are_left_alone() {
        let mut texts = ["KubeletReady", "KubeletReady", "Other"].map(SharedText::from);
        share_texts(&mut texts);
        assert_eq!(texts[0].owners(), 3, "both and the pool");
        let mut long = [(); 2].map(|()| SharedText::from("a".repeat(LONGEST + 1)));
        share_texts(&mut long);
        assert_eq!(long[0].owners(), 1);
    }

    #[test]
    fn texts_without_an_owner_are_dropped() {
        let mut pool = TextPool::default();
        let mut kept = SharedText::from("kept");
        pool.share(&mut kept);
        (0..10_000).for_each(|at| pool.share(&mut at.to_string().into()));
        assert!(pool.known.len() <= SMALL / OF_TEXT, "{}", pool.known.len());
        (0..1_000).for_each(|at| pool.share(&mut format!("{at:>LONGEST$}").into()));
        let size: usize = pool.known.iter().map(|text| text.len()).sum();
        assert!(size <= SMALL + LONGEST, "{size}");
        assert!(pool.known.contains("kept"));
    }

    #[test]
    fn equal_values_of_a_group_are_shared() {
        let pool = ValuePool::new();
        let share = |group: &str, value: usize| {
            let mut shared = SharedValue::from(value);
            pool.share(group, &mut shared);
            shared
        };
        let (one, other) = (share("a", 1), share("a", 2));
        assert_eq!((share("a", 1).owners(), other.owners(), share("b", 1).owners()), (3, 2, 2));
        let many: Vec<_> = (0..10 * MOST_VALUES).map(|value| share("a", value)).collect();
        assert!(pool.0.lock().known.values().all(|values| values.len() <= MOST_VALUES));
        assert_eq!((*one, many.len()), (1, 10 * MOST_VALUES));
        (0..10 * FEW).for_each(|group| drop(share(&group.to_string(), 1)));
        assert!(pool.0.lock().known.len() <= FEW, "{}", pool.0.lock().known.len());
    }
}

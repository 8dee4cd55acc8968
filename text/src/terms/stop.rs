//! English words that say nothing about a text's subject.

/// Sorted, for the binary search; a test holds it so.
const STOP: &[&str] = &[
    "about", "above", "after", "again", "against", "ain", "all", "also", "although", "always",
    "am", "an", "and", "any", "are", "aren", "as", "at", "be", "because", "been", "before",
    "being", "below", "between", "both", "but", "by", "can", "cannot", "could", "couldn", "did",
    "didn", "do", "does", "doesn", "doing", "don", "done", "down", "during", "each", "either",
    "else", "etc", "even", "ever", "every", "few", "for", "from", "further", "get", "gets",
    "getting", "go", "goes", "going", "got", "had", "hadn", "has", "hasn", "have", "haven",
    "having", "he", "her", "here", "hers", "herself", "him", "himself", "his", "how", "however",
    "if", "in", "instead", "into", "is", "isn", "it", "its", "itself", "just", "let", "like",
    "ll", "made", "make", "makes", "making", "many", "may", "me", "might", "more", "most", "much",
    "must", "mustn", "my", "myself", "neither", "never", "no", "nor", "not", "nothing", "now",
    "of", "off", "often", "on", "once", "one", "only", "or", "other", "others", "our", "ours",
    "ourselves", "out", "over", "own", "per", "perhaps", "rather", "re", "really", "same", "shall",
    "she", "should", "shouldn", "since", "so", "some", "something", "still", "such", "than",
    "that", "the", "their", "theirs", "them", "themselves", "then", "there", "these", "they",
    "this", "those", "through", "thus", "to", "too", "under", "until", "up", "upon", "us", "use",
    "used", "uses", "using", "ve", "very", "via", "was", "wasn", "we", "were", "weren", "what",
    "when", "where", "whether", "which", "while", "who", "whom", "whose", "why", "will", "with",
    "within", "without", "won", "would", "wouldn", "yes", "yet", "you", "your", "yours",
    "yourself",
];

/// Whether a word in lower case is too common to search by.
pub(super) fn is_stop(word: &str) -> bool {
    STOP.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted() {
        assert!(STOP.is_sorted_by(|a, b| a < b));
        assert!(is_stop("the") && is_stop("about") && is_stop("yourself"));
        assert!(!is_stop("retry") && !is_stop(""));
    }
}

import GRDB
let ChatStorePlaceholder = 0

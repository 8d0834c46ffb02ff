// The default ids are hashes of whole paths: a build in another folder would differ from the one that is kept.
module.exports = { optimization: { moduleIds: 'named', chunkIds: 'named' } }
